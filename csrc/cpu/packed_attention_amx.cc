#include "cpu/amx_session.h"
#include "cpu/packed_attention_body.h"

namespace mlmfast {
namespace {

// 2 x 2 tiles of results in tmm0 to tmm3, the left factors in tmm4 and tmm5, the right ones in tmm6 and tmm7.
template <class F>
struct TileProducts {
  using Format = F;
  using Session = AmxSession;
  static constexpr int64_t kQueryBlock = 2 * kTileRows;

  // out: rows up to whole tiles; the operands have whole steps of words.
  template <bool kTwoColumns>
  static void multiply(const Left& left, const Right& right, int64_t num_rows, int64_t num_words, float* out,
                       int64_t out_stride) {
    if (num_rows > kTileRows) {
      multiply<true, kTwoColumns>(left, right, num_words, out, out_stride);
    } else {
      multiply<false, kTwoColumns>(left, right, num_words, out, out_stride);
    }
  }

 private:
  template <bool kTwoRows, bool kTwoColumns>
  static void multiply(const Left& left, const Right& right, int64_t num_words, float* out, int64_t out_stride) {
    const int64_t left_bytes = left.stride * sizeof(float), out_bytes = out_stride * sizeof(float);
    const int64_t num_steps = (num_words + kTileWords - 1) / kTileWords;
    __asm__ volatile("" ::: "memory");  // the tile loads do not tell the compiler what they read
    _tile_zero(0);
    if constexpr (kTwoColumns) _tile_zero(1);
    if constexpr (kTwoRows) _tile_zero(2);
    if constexpr (kTwoRows && kTwoColumns) _tile_zero(3);
    for (const Term term : Format::kTerms) {
      const float *words = left.words + term.left * left.plane, *tiles = right.tiles + term.right * right.plane;
      for (int64_t step = 0; step < num_steps; ++step, words += left.step, tiles += right.step) {
        _tile_loadd(4, words, left_bytes);
        _tile_loadd(6, tiles, 64);
        _tile_dpbf16ps(0, 4, 6);
        if constexpr (kTwoColumns) {
          _tile_loadd(7, tiles + right.next, 64);
          _tile_dpbf16ps(1, 4, 7);
        }
        if constexpr (kTwoRows) {
          _tile_loadd(5, words + kTileRows * left.stride, left_bytes);
          _tile_dpbf16ps(2, 5, 6);
          if constexpr (kTwoColumns) _tile_dpbf16ps(3, 5, 7);
        }
      }
    }
    _tile_stored(0, out, out_bytes);
    if constexpr (kTwoColumns) _tile_stored(1, out + kTileWords, out_bytes);
    if constexpr (kTwoRows) _tile_stored(2, out + kTileRows * out_stride, out_bytes);
    if constexpr (kTwoRows && kTwoColumns) _tile_stored(3, out + kTileRows * out_stride + kTileWords, out_bytes);
    __asm__ volatile("" ::: "memory");
  }
};

}  // namespace

extern const PackedAttentionKernels kPackedAttentionAmx =
    make_packed_attention<TileProducts<Bfloat16Format<Avx512Bf16>>>();
extern const PackedAttentionKernels kPackedAttentionAmxBf16x3 =
    make_packed_attention<TileProducts<Bf16x3Format<Avx512Bf16>>>();
extern const PackedAttentionKernels kPackedAttentionAmxBf16x4 =
    make_packed_attention<TileProducts<Bf16x4Format<Avx512Bf16>>>();

}  // namespace mlmfast
