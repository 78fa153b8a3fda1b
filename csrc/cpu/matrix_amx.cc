#include <iterator>

#include "cpu/amx_session.h"
#include "cpu/matrix_body.h"
#include "cpu/vec_avx512_bf16.h"

namespace mlmfast {
namespace {

constexpr int kTileRows = 16;   // of a tile register
constexpr int kTileWords = 16;  // of a row of a tile register

// The tile registers' numbers must be literals.
#define MLMFAST_MULTIPLY(result, rows, weights) \
  if constexpr (Format::kIsScaled) {            \
    _tile_dpbssd(result, rows, weights);        \
  } else {                                      \
    _tile_dpbf16ps(result, rows, weights);      \
  }

// 2 x 2 tiles of results in tmm0 to tmm3, the rows' factors in tmm4 and tmm5, the weights' in tmm6 and tmm7.
template <class F>
struct AmxTiles {
  using Format = F;
  static constexpr int kBlockRows = 2 * kTileRows;
  static constexpr int kColumns = 2 * kTileWords;
  static constexpr int64_t kPanelBytes = kColumns * sizeof(float);  // from word to word of a panel

  using Session = AmxSession;

  static int64_t num_pauses(const MatrixProduct& p) { return p.num_words / kTileWords * std::size(Format::kTerms); }

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
  // Each product as soon as its factors are there. Of one row tile or two; factors that are not loaded are there.
  template <bool kTwo, bool kLoadRows, bool kLoadWeights>
  static void multiply_step(const float* x, int64_t stride_bytes, const float* panel) {
    if constexpr (kLoadRows) _tile_loadd(4, x, stride_bytes);
    if constexpr (kLoadWeights) _tile_loadd(6, panel, kPanelBytes);
    MLMFAST_MULTIPLY(0, 4, 6);
    if constexpr (kLoadWeights) _tile_loadd(7, panel + kTileWords, kPanelBytes);
    MLMFAST_MULTIPLY(1, 4, 7);
    if constexpr (kTwo) {
      if constexpr (kLoadRows) _tile_loadd(5, x + kTileRows * stride_bytes / sizeof(float), stride_bytes);
      MLMFAST_MULTIPLY(2, 5, 6);
      MLMFAST_MULTIPLY(3, 5, 7);
    }
  }

  template <bool kTwo, class Advance>
  static void multiply(const MatrixProduct& p, const float* x, const float* panel, const float* start,
                       float* tile, Advance& advance) {
    const int64_t stride_bytes = p.x_stride * sizeof(float);
    const int64_t num_steps = p.num_words / kTileWords;
    const int64_t rows_per_pause = (kBlockRows + num_pauses(p) - 1) / num_pauses(p);
    __asm__ volatile("" ::: "memory");  // the tile loads do not tell the compiler what they read
    // Stride 0: every row has the same start.
    _tile_loadd(0, start, 0);
    _tile_loadd(1, start + kTileWords, 0);
    if constexpr (kTwo) {
      _tile_loadd(2, start, 0);
      _tile_loadd(3, start + kTileWords, 0);
    }
    for (int64_t step = 0; step < num_steps; ++step) {
      const float* high = x + step * kTileWords;
      const float* weights = panel + step * kTileWords * kColumns;
      if constexpr (Format::kNumPlanes == 2) {
        const float *low = high + p.num_words, *low_weights = weights + p.num_words * kColumns;
        multiply_step<kTwo, true, true>(high, stride_bytes, low_weights);
        advance(rows_per_pause);
        multiply_step<kTwo, false, true>(high, stride_bytes, weights);
        advance(rows_per_pause);
        multiply_step<kTwo, true, false>(low, stride_bytes, weights);
        if constexpr (std::size(Format::kTerms) == 4) {
          advance(rows_per_pause);
          multiply_step<kTwo, false, true>(low, stride_bytes, low_weights);
        }
      } else {
        multiply_step<kTwo, true, true>(high, stride_bytes, weights);
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

#undef MLMFAST_MULTIPLY

}  // namespace

extern const MatrixKernels kMatrixAmx[] = {
    make_matrix_kernels<AmxTiles<Bf16x3Format<Avx512Bf16>>>(Precision::bf16x3, Isa::amx),
    make_matrix_kernels<AmxTiles<Bf16x4Format<Avx512Bf16>>>(Precision::bf16x4, Isa::amx),
    make_matrix_kernels<AmxTiles<Bfloat16Format<Avx512Bf16>>>(Precision::bfloat16, Isa::amx),
    make_matrix_kernels<AmxTiles<Int8Format<Avx512Bf16>>>(Precision::int8, Isa::amx),
};

}  // namespace mlmfast
