#include "cpu/packed_attention_body.h"

namespace mlmfast {
namespace {

template <class F>
struct VectorProducts {
  using Format = F;
  using Ops = typename Format::Ops;
  using Vec = typename Ops::Vec;
  struct Session {};
  static constexpr int64_t kQueryBlock = 2 * Ops::kBlockRows;

  template <bool kTwoColumns>
  static void multiply(const Left& left, const Right& right, int64_t num_rows, int64_t num_words, float* out,
                       int64_t out_stride) {
    Left rows = left;
    for (int64_t row = 0; row < num_rows; row += Ops::kBlockRows, rows.words += Ops::kBlockRows * left.stride) {
      const int64_t count = std::min<int64_t>(Ops::kBlockRows, num_rows - row);
      multiply_rows<kTwoColumns, Ops::kBlockRows>(rows, right, count, num_words, out + row * out_stride, out_stride);
    }
  }

 private:
  // Of 1 <= num_rows <= kRows.
  template <bool kTwoColumns, int kRows>
  static void multiply_rows(const Left& left, const Right& right, int64_t num_rows, int64_t num_words, float* out,
                            int64_t out_stride) {
    if constexpr (kRows > 1) {
      if (num_rows < kRows) {
        return multiply_rows<kTwoColumns, kRows - 1>(left, right, num_rows, num_words, out, out_stride);
      }
    }
    constexpr int kColumns = kTwoColumns ? 2 : 1;
    Vec totals[kRows][kColumns];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) std::fill_n(totals[r], kColumns, Ops::set1(0.0f));
    for (const Term term : Format::kTerms) {
      const float *words = left.words + term.left * left.plane, *tiles = right.tiles + term.right * right.plane;
      for (int64_t begin = 0; begin < num_words; begin += kTileWords, words += left.step, tiles += right.step) {
        const int64_t count = std::min(kTileWords, num_words - begin);
        for (int64_t k = 0; k < count; ++k) {
          Vec columns[kColumns];
          for (int c = 0; c < kColumns; ++c) columns[c] = Ops::load(tiles + c * right.next + k * kTileWords);
#pragma GCC unroll 16
          for (int r = 0; r < kRows; ++r) {
            const Vec word = Ops::set1(words[r * left.stride + k]);
            for (int c = 0; c < kColumns; ++c) totals[r][c] = Format::multiply_add(word, columns[c], totals[r][c]);
          }
        }
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kColumns; ++c) Ops::store(out + r * out_stride + c * kTileWords, totals[r][c]);
    }
  }
};

}  // namespace

extern const PackedAttentionKernels kPackedAttentionAvx512Bf16 =
    make_packed_attention<VectorProducts<Bfloat16Format<Avx512Bf16>>>();

}  // namespace mlmfast
