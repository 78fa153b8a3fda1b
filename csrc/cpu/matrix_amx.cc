#include <iterator>

#include "cpu/matrix_body.h"
#include "cpu/vec_avx512_bf16.h"

namespace mlmfast {
namespace {

constexpr int kTileRows = 16;   // of a tile register
constexpr int kTileWords = 16;  // of a row of a tile register

// 2 x 2 tiles of results in tmm0 to tmm3, the rows' factors in tmm4 and tmm5, the weights' in tmm6 and tmm7.
template <class F>
struct AmxTiles {
  using Format = F;
  static constexpr int kBlockRows = 2 * kTileRows;
  static constexpr int kColumns = 2 * kTileWords;
  static constexpr int64_t kPanelBytes = kColumns * sizeof(float);  // from word to word of a panel

  // Tile registers are configured per thread, and other code in this thread may want them its own way.
  struct Session {
    Session() {
      struct alignas(64) {
        uint8_t palette = 1, start_row = 0, reserved[14] = {};
        uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
      } config;
      _tile_loadconfig(&config);
    }
    ~Session() { _tile_release(); }
    Session(const Session&) = delete;
  };

  template <class Advance>
  static void multiply(const MatrixProduct& p, const float* x, int64_t num_rows, const float* panel,
                       const float* start, float* tile, Advance&& advance) {
    if (num_rows > kTileRows) {
      multiply<true>(p, x, panel, start, tile, advance);
    } else {
      multiply<false>(p, x, panel, start, tile, advance);
    }
  }

 private:
  template <bool kTwo>
  static void load_rows(const float* x, int64_t stride_bytes) {
    _tile_loadd(4, x, stride_bytes);
    if constexpr (kTwo) _tile_loadd(5, x + kTileRows * stride_bytes / sizeof(float), stride_bytes);
  }

  static void load_weights(const float* panel) {
    _tile_loadd(6, panel, kPanelBytes);
    _tile_loadd(7, panel + kTileWords, kPanelBytes);
  }

  template <bool kTwo>
  static void multiply_loaded() {
    if constexpr (Format::kIsScaled) {
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 4, 7);
      if constexpr (kTwo) {
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
      }
    } else {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      if constexpr (kTwo) {
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
  }

  template <bool kTwo, class Advance>
  static void multiply(const MatrixProduct& p, const float* x, const float* panel, const float* start,
                       float* tile, Advance& advance) {
    const int64_t stride_bytes = p.x_stride * sizeof(float);
    const int64_t num_steps = p.num_words / kTileWords;
    const int64_t num_pauses = num_steps * std::size(Format::kTerms);
    const int64_t rows_per_pause = (kBlockRows + num_pauses - 1) / num_pauses;
    __asm__ volatile("" ::: "memory");  // the tile loads do not tell the compiler what they read
    // Stride 0: every row has the same start.
    _tile_loadd(0, start, 0);
    _tile_loadd(1, start + kTileWords, 0);
    if constexpr (kTwo) {
      _tile_loadd(2, start, 0);
      _tile_loadd(3, start + kTileWords, 0);
    }
    for (int64_t step = 0; step < num_steps; ++step) {
      const float* words = x + step * kTileWords;
      const float* weights = panel + step * kTileWords * kColumns;
      load_rows<kTwo>(words, stride_bytes);
      if constexpr (Format::kNumPlanes == 2) {
        load_weights(weights + p.num_words * kColumns);
        multiply_loaded<kTwo>();  // high low
        advance(rows_per_pause);
        load_weights(weights);
        multiply_loaded<kTwo>();  // high high
        advance(rows_per_pause);
        load_rows<kTwo>(words + p.num_words, stride_bytes);
        multiply_loaded<kTwo>();  // low high
        if constexpr (std::size(Format::kTerms) == 4) {
          advance(rows_per_pause);
          load_weights(weights + p.num_words * kColumns);
          multiply_loaded<kTwo>();  // low low
        }
      } else {
        load_weights(weights);
        multiply_loaded<kTwo>();
      }
      advance(rows_per_pause);
    }
    _tile_stored(0, tile, kPanelBytes);
    _tile_stored(1, tile + kTileWords, kPanelBytes);
    if constexpr (kTwo) {
      _tile_stored(2, tile + kTileRows * kColumns, kPanelBytes);
      _tile_stored(3, tile + kTileRows * kColumns + kTileWords, kPanelBytes);
    }
  }
};

}  // namespace

extern const MatrixKernels kMatrixAmx[] = {
    make_matrix_kernels<AmxTiles<Bf16x3Format<Avx512Bf16>>>(Precision::bf16x3, Isa::amx),
    make_matrix_kernels<AmxTiles<Bf16x4Format<Avx512Bf16>>>(Precision::bf16x4, Isa::amx),
    make_matrix_kernels<AmxTiles<Bfloat16Format<Avx512Bf16>>>(Precision::bfloat16, Isa::amx),
    make_matrix_kernels<AmxTiles<Int8Format<Avx512Bf16>>>(Precision::int8, Isa::amx),
};

}  // namespace mlmfast
