// Tile registers of 16 rows of 64 bytes.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace mlmfast {
namespace {

// Tile registers are configured per thread, and other code in this thread may want them its own way.
struct AmxSession {
  AmxSession() {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    _tile_loadconfig(&config);
  }
  ~AmxSession() { _tile_release(); }
  AmxSession(const AmxSession&) = delete;
};

}  // namespace
}  // namespace mlmfast
