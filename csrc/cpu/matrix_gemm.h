// One block of rows times one panel of weights, written once over a struct of vector operations (vec_*.h)
// and a format of factors. Each instruction set compiles its own copy in an unnamed namespace, so the linker
// never mixes code of two sets.
#pragma once

#include <cstdint>

#include "cpu/activation.h"

namespace mlmfast {
namespace {

// Which planes of the two operands are multiplied.
struct Term {
  int left, right;
};

// A word is one float32. Of every format, kChainLength words are multiplied in one register before they join the total:
// shorter chains lose fewer bits.
template <class Operations>
struct Float32Format {
  using Ops = Operations;
  using Vec = typename Ops::Vec;
  using Activated = Float32Format;
  static constexpr int kNumPlanes = 1;
  static constexpr int kValuesPerWord = 1;
  static constexpr int64_t kChainLength = 512;
  static constexpr Term kTerms[] = {{0, 0}};
  static constexpr const auto& kNormalCdf = kFineNormalCdf;
  static constexpr bool kIsScaled = false;

  static Vec add(Vec a, Vec b) { return Ops::add(a, b); }
  static Vec multiply_add(Vec a, Vec b, Vec total) { return Ops::fma(a, b, total); }
  static void encode(Vec left, Vec right, float* words, int64_t) {
    Ops::store(words, left);
    Ops::store(words + Ops::kWidth, right);
  }
};

template <class Ops>
typename Ops::Vec round_and_pack(typename Ops::Vec left, typename Ops::Vec right) {
  if constexpr (requires { Ops::round_and_pack_bf16(left, right); }) {
    return Ops::round_and_pack_bf16(left, right);
  } else {
    return Ops::pack_bf16(Ops::round_bf16(left), Ops::round_bf16(right));
  }
}

// A word is two bfloat16, neighbours in K.
template <class Operations>
struct Bfloat16Format {
  using Ops = Operations;
  using Vec = typename Ops::Vec;
  using Activated = Bfloat16Format;
  static constexpr int kNumPlanes = 1;
  static constexpr int kValuesPerWord = 2;
  static constexpr int64_t kChainLength = 512;
  static constexpr Term kTerms[] = {{0, 0}};
  static constexpr const auto& kNormalCdf = kCoarseNormalCdf;
  static constexpr bool kIsScaled = false;

  static Vec add(Vec a, Vec b) { return Ops::add(a, b); }
  static Vec multiply_add(Vec a, Vec b, Vec total) {
    if constexpr (requires { Ops::dot_bf16(a, b, total); }) {
      return Ops::dot_bf16(a, b, total);
    } else {
      total = Ops::fma(Ops::first_bf16(a), Ops::first_bf16(b), total);
      return Ops::fma(Ops::second_bf16(a), Ops::second_bf16(b), total);
    }
  }
  static void encode(Vec left, Vec right, float* words, int64_t) {
    Ops::store(words, round_and_pack<Ops>(left, right));
  }
};

// x = high + low, each bfloat16; the small products come first.
template <class Operations>
struct Bf16x3Format : Bfloat16Format<Operations> {
  using Ops = Operations;
  using Vec = typename Ops::Vec;
  using Activated = Bf16x3Format;
  static constexpr int kNumPlanes = 2;
  static constexpr int64_t kChainLength = 128;
  static constexpr Term kTerms[] = {{0, 1}, {1, 0}, {0, 0}};
  static constexpr const auto& kNormalCdf = kFineNormalCdf;

  static void encode(Vec left, Vec right, float* words, int64_t plane_words) {
    const Vec left_high = Ops::round_bf16(left), right_high = Ops::round_bf16(right);
    Ops::store(words, round_and_pack<Ops>(left_high, right_high));
    Ops::store(words + plane_words,
               round_and_pack<Ops>(Ops::sub(left, left_high), Ops::sub(right, right_high)));
  }
};

// The product of the low parts, too.
template <class Operations>
struct Bf16x4Format : Bf16x3Format<Operations> {
  using Activated = Bf16x4Format;
  static constexpr Term kTerms[] = {{1, 1}, {0, 1}, {1, 0}, {0, 0}};
};

// A word is four int8, neighbours in K; sums are int32. What is activated waits as bfloat16 until its row is
// whole and has a largest value.
template <class Operations>
struct Int8Format {
  using Ops = Operations;
  using Vec = typename Ops::Vec;
  using Activated = Bfloat16Format<Ops>;
  static constexpr int kNumPlanes = 1;
  static constexpr int kValuesPerWord = 4;
  static constexpr int64_t kChainLength = 512;
  static constexpr Term kTerms[] = {{0, 0}};
  static constexpr const auto& kNormalCdf = kRoughNormalCdf;
  static constexpr bool kIsScaled = true;

  static Vec add(Vec a, Vec b) { return Ops::add_int32(a, b); }
  static Vec multiply_add(Vec a, Vec b, Vec total) { return Ops::dot_int8(a, b, total); }
};

// As __builtin_prefetch counts: the cache that a panel fits.
constexpr int kIntoSecondLevel = 2;

// tile [kRows, tile_stride] = start + left panel, left [kRows, left_stride], panel [planes, words, 2 vectors].
// Every sum has the same order whatever kRows is.
template <class Format, int kRows>
void multiply_block(const float* left, int64_t left_stride, const float* panel, const float* start,
                    int64_t num_words, float* tile, int64_t tile_stride) {
  using Ops = typename Format::Ops;
  using Vec = typename Ops::Vec;
  constexpr int kWidth = Ops::kWidth;
  constexpr int64_t kChainLength = Format::kChainLength;
  const int64_t panel_words = Format::kNumPlanes * num_words * 2 * kWidth;
  for (int64_t begin = 0; begin < num_words; begin += kChainLength) {
    Vec totals[kRows][2];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) totals[r][0] = totals[r][1] = Ops::set1(0.0f);
    const int64_t end = begin + kChainLength < num_words ? begin + kChainLength : num_words;
    for (const Term term : Format::kTerms) {
      const float* words = left + term.left * num_words + begin;
      const float* columns = panel + (term.right * num_words + begin) * 2 * kWidth;
      for (int64_t k = begin; k < end; ++k) {
        // Of the next panel, whose bytes few rows would wait for.
        __builtin_prefetch(columns + panel_words, 0, kIntoSecondLevel);
        __builtin_prefetch(columns + panel_words + kWidth, 0, kIntoSecondLevel);
        const Vec panel_left = Ops::load(columns), panel_right = Ops::load(columns + kWidth);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          const Vec word = Ops::set1(words[r * left_stride]);
          totals[r][0] = Format::multiply_add(word, panel_left, totals[r][0]);
          totals[r][1] = Format::multiply_add(word, panel_right, totals[r][1]);
        }
        ++words;
        columns += 2 * kWidth;
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      float* row = tile + r * tile_stride;
      const float* total = begin == 0 ? start : row;
      Ops::store(row, Format::add(totals[r][0], Ops::load(total)));
      Ops::store(row + kWidth, Format::add(totals[r][1], Ops::load(total + kWidth)));
    }
  }
}

// multiply_block for 1 <= num_rows <= Ops::kBlockRows.
template <class Format, int kRows = Format::Ops::kBlockRows>
void multiply(const float* left, int64_t left_stride, int64_t num_rows, const float* panel, const float* start,
              int64_t num_words, float* tile, int64_t tile_stride) {
  if constexpr (kRows > 1) {
    if (num_rows < kRows) {
      return multiply<Format, kRows - 1>(left, left_stride, num_rows, panel, start, num_words, tile,
                                         tile_stride);
    }
  }
  multiply_block<Format, kRows>(left, left_stride, panel, start, num_words, tile, tile_stride);
}

}  // namespace
}  // namespace mlmfast
