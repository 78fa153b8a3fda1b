// Rounding to bfloat16, as the tests do it.
#pragma once

#include <bit>
#include <cstdint>

namespace mlmfast::testing {

// To the nearest, ties to even.
inline uint16_t to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace mlmfast::testing
