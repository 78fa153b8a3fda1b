// Gradients by logits, rounded to factors of the two products that follow while they are in registers.
#pragma once

#include <algorithm>

#include "cpu/exp.h"
#include "cpu/matrix_gemm.h"
#include "cpu/matrix_kernels.h"

namespace mlmfast {
namespace {

// Words of neighbours in K, one of each vector, into every plane.
template <class Format>
void encode_across(const typename Format::Vec (&values)[Format::kValuesPerWord], float* words,
                   [[maybe_unused]] int64_t plane_words) {
  using Ops = typename Format::Ops;
  if constexpr (Format::kValuesPerWord == 1) {
    Ops::store(words, values[0]);
  } else {
    const auto first = Ops::round_bf16(values[0]), second = Ops::round_bf16(values[1]);
    Ops::store(words, Ops::interleave_bf16(first, second));
    if constexpr (Format::kNumPlanes == 2) {
      Ops::store(words + plane_words, Ops::interleave_bf16(Ops::round_bf16(Ops::sub(values[0], first)),
                                                           Ops::round_bf16(Ops::sub(values[1], second))));
    }
  }
}

template <class Format>
void logit_gradients(const LogitGradients& t) {
  using Ops = typename Format::Ops;
  using Vec = typename Ops::Vec;
  constexpr int kWidth = Ops::kWidth, kValues = Format::kValuesPerWord;
  constexpr int kRows = 2 * kWidth;  // of a panel
  const Vec zero = Ops::set1(0.0f), d = Ops::set1(t.d), tail_threshold = Ops::set1(t.tail_threshold);
  Vec lse[2], a[2], b[2], u[2], upstream[2];
  for (int v = 0; v < 2; ++v) {
    lse[v] = Ops::load(t.lse + v * kWidth);
    a[v] = Ops::load(t.a + v * kWidth);
    b[v] = Ops::load(t.b + v * kWidth);
    u[v] = Ops::load(t.u + v * kWidth);
    upstream[v] = Ops::load(t.upstream + v * kWidth);
  }
  const LogitGradients::Target* target = t.targets;
  float* words = t.panel;
  for (int64_t first = 0; first < t.class_words * kValues; first += kValues, words += kRows) {
    Vec g[2][kValues];
    for (int i = 0; i < kValues; ++i) {
      const int64_t c = first + i;
      if (c >= t.num_classes) {
        g[0][i] = g[1][i] = zero;
        continue;
      }
      const Vec bias = Ops::set1(t.bias == nullptr ? 0.0f : t.bias[c]);
      for (int v = 0; v < 2; ++v) {
        const Vec z = Ops::add(Ops::load(t.logits + c * t.stride + v * kWidth), bias);
        const Vec p = exp<Ops>(Ops::sub(z, lse[v]));
        const Vec tail = Ops::if_less(p, tail_threshold, d, zero);
        g[v][i] = Ops::mul(upstream[v], Ops::add(Ops::fma(Ops::fma(b[v], p, a[v]), p, u[v]), tail));
      }
      if (target != t.targets_end && target->class_index == c) {
        alignas(64) float row[kRows];
        Ops::store(row, g[0][i]);
        Ops::store(row + kWidth, g[1][i]);
        for (; target != t.targets_end && target->class_index == c; ++target) row[target->row] = target->gradient;
        g[0][i] = Ops::load(row);
        g[1][i] = Ops::load(row + kWidth);
      }
      t.class_sums[c] += Ops::reduce_add(Ops::add(g[0][i], g[1][i]));
      Format::encode(g[0][i], g[1][i], t.operand.words + c * t.operand.stride, t.operand.plane_words);
    }
    for (int v = 0; v < 2; ++v) encode_across<Format>(g[v], words + v * kWidth, t.class_words * kRows);
  }
}

template <class Format>
constexpr auto logit_gradients_of() {
  if constexpr (Format::kIsScaled) {
    return static_cast<void (*)(const LogitGradients&)>(nullptr);
  } else {
    return logit_gradients<Format>;
  }
}

template <class Ops>
void transpose(const float* from, int64_t from_stride, int64_t num_rows, int64_t num_columns, float* to,
               int64_t to_stride) {
  constexpr int64_t kBlock = Ops::kWidth;
  for (int64_t row = 0; row < num_rows; row += kBlock) {
    for (int64_t column = 0; column < num_columns; column += kBlock) {
      const float* block = from + row * from_stride + column;
      float* out = to + column * to_stride + row;
      if (num_rows - row >= kBlock && num_columns - column >= kBlock) {
        typename Ops::Vec vectors[kBlock];
        for (int64_t r = 0; r < kBlock; ++r) vectors[r] = Ops::load_unaligned(block + r * from_stride);
        Ops::transpose(vectors);
        for (int64_t c = 0; c < kBlock; ++c) Ops::store_unaligned(out + c * to_stride, vectors[c]);
      } else {
        for (int64_t r = 0; r < std::min(kBlock, num_rows - row); ++r) {
          for (int64_t c = 0; c < std::min(kBlock, num_columns - column); ++c) {
            out[c * to_stride + r] = block[r * from_stride + c];
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace mlmfast
