// The sequence kernels, written once over a struct of vector operations (vec_*.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/exp.h"
#include "cpu/sequence_kernels.h"

namespace mlmfast {
namespace {

// Queries stand in the lanes of a vector, so that nothing is added across lanes and a query's result does not
// depend on its neighbours: a block of queries is transposed, then scores [key, query], then outputs
// [query, feature].
constexpr int kKeyBlock = 8;    // keys whose scores are summed side by side
constexpr int kQueryBlock = 8;  // queries whose outputs are summed side by side

template <class Ops>
int64_t padded(int64_t size) {
  return (size + Ops::kWidth - 1) / Ops::kWidth * Ops::kWidth;
}

// Queries [head_size, kWidth], scores [length, kWidth], and values [length, padded head_size] where whole
// vectors cannot be read in place.
template <class Ops>
int64_t attention_scratch(int64_t length, int64_t head_size) {
  return (head_size + length) * Ops::kWidth + length * padded<Ops>(head_size);
}

// The queries [first, first + count), count <= kWidth, as columns; missing ones are 0.
template <class Ops>
void transpose_queries(const HeadAttention& a, int64_t first, int64_t count, float* columns) {
  constexpr int kWidth = Ops::kWidth;
  const float* queries = a.queries + first * a.query_stride;
  int64_t i = 0;
  for (; i + kWidth <= a.head_size; i += kWidth) {
    typename Ops::Vec rows[kWidth];
    for (int r = 0; r < kWidth; ++r) {
      rows[r] = r < count ? Ops::load_unaligned(queries + r * a.query_stride + i) : Ops::set1(0.0f);
    }
    Ops::transpose(rows);
    for (int r = 0; r < kWidth; ++r) Ops::store(columns + (i + r) * kWidth, rows[r]);
  }
  for (; i < a.head_size; ++i) {
    for (int r = 0; r < kWidth; ++r) columns[i * kWidth + r] = r < count ? queries[r * a.query_stride + i] : 0.0f;
  }
}

// scores[k] = keys[k] . queries for kKeys keys.
template <class Ops, int kKeys = kKeyBlock>
void score_keys(const float* keys, int64_t key_stride, int64_t count, const float* queries, int64_t head_size,
                float* scores) {
  if constexpr (kKeys > 1) {
    if (count < kKeys) return score_keys<Ops, kKeys - 1>(keys, key_stride, count, queries, head_size, scores);
  }
  typename Ops::Vec sums[kKeys];
#pragma GCC unroll 8
  for (int k = 0; k < kKeys; ++k) sums[k] = Ops::set1(0.0f);
  for (int64_t i = 0; i < head_size; ++i) {
    const auto query = Ops::load(queries + i * Ops::kWidth);
#pragma GCC unroll 8
    for (int k = 0; k < kKeys; ++k) sums[k] = Ops::fma(Ops::set1(keys[k * key_stride + i]), query, sums[k]);
  }
#pragma GCC unroll 8
  for (int k = 0; k < kKeys; ++k) Ops::store(scores + k * Ops::kWidth, sums[k]);
}

// Scores of keys a query does not see to -inf.
template <class Ops>
void hide_far_keys(const HeadAttention& a, int64_t first_query, int64_t num_queries, int64_t begin, int64_t end,
                   float* scores) {
  constexpr int kWidth = Ops::kWidth;
  alignas(64) float positions[kWidth] = {};
  for (int64_t q = 0; q < num_queries; ++q) positions[q] = static_cast<float>(a.query_positions[first_query + q]);
  const auto position = Ops::load(positions);
  const auto reach = Ops::set1(static_cast<float>(a.reach));
  const auto none = Ops::set1(-std::numeric_limits<float>::infinity());
  for (int64_t k = begin; k < end; ++k, scores += kWidth) {
    const auto key = Ops::set1(static_cast<float>(k));
    const auto distance = Ops::max(Ops::sub(key, position), Ops::sub(position, key));
    Ops::store(scores, Ops::if_less(reach, distance, none, Ops::load(scores)));
  }
}

// Scores [count, kWidth] to exp(scale (score - max)); returns 1 / their sum.
template <class Ops>
typename Ops::Vec exponentiate(float* scores, int64_t count, float scale) {
  constexpr int kWidth = Ops::kWidth;
  auto max = Ops::load(scores);
  for (int64_t k = 1; k < count; ++k) max = Ops::max(max, Ops::load(scores + k * kWidth));
  const auto factor = Ops::set1(scale);
  auto sum = Ops::set1(0.0f);
  for (int64_t k = 0; k < count; ++k) {
    // The difference first: of large scores, scaled ones differ by more than they should.
    const auto e = exp<Ops>(Ops::mul(Ops::sub(Ops::load(scores + k * kWidth), max), factor));
    Ops::store(scores + k * kWidth, e);
    sum = Ops::add(sum, e);
  }
  return Ops::reciprocal(sum);
}

// outputs[q, i] = factors[q] sum over keys k of weights[k, q] values[k, i], for kQueries queries and one vector
// of features.
template <class Ops, int kQueries = kQueryBlock>
void mix_values(const float* weights, const float* factors, int64_t num_queries, const float* values,
                int64_t value_stride, int64_t num_keys, float* outputs, int64_t output_stride, int64_t columns) {
  if constexpr (kQueries > 1) {
    if (num_queries < kQueries) {
      return mix_values<Ops, kQueries - 1>(weights, factors, num_queries, values, value_stride, num_keys, outputs,
                                           output_stride, columns);
    }
  }
  typename Ops::Vec sums[kQueries];
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) sums[q] = Ops::set1(0.0f);
  for (int64_t k = 0; k < num_keys; ++k) {
    const auto value = Ops::load_unaligned(values + k * value_stride);
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) sums[q] = Ops::fma(Ops::set1(weights[k * Ops::kWidth + q]), value, sums[q]);
  }
  for (int q = 0; q < kQueries; ++q) {
    const auto output = Ops::mul(sums[q], Ops::set1(factors[q]));
    if (columns == Ops::kWidth) {
      Ops::store_unaligned(outputs + q * output_stride, output);
    } else {
      alignas(64) float features[Ops::kWidth];
      Ops::store(features, output);
      std::copy_n(features, columns, outputs + q * output_stride);
    }
  }
}

template <class Ops>
void attend(const HeadAttention& a, float* scratch) {
  constexpr int kWidth = Ops::kWidth;
  float* queries = scratch;
  float* scores = queries + a.head_size * kWidth;
  const float* values = a.values;
  int64_t value_stride = a.key_stride;
  if (a.head_size % kWidth != 0) {
    value_stride = padded<Ops>(a.head_size);
    float* rows = scores + a.length * kWidth;
    for (int64_t k = 0; k < a.length; ++k) {
      std::copy_n(a.values + k * a.key_stride, a.head_size, rows + k * value_stride);
      std::fill(rows + k * value_stride + a.head_size, rows + (k + 1) * value_stride, 0.0f);
    }
    values = rows;
  }
  for (int64_t first = 0; first < a.num_queries; first += kWidth) {
    const int64_t num_queries = std::min<int64_t>(kWidth, a.num_queries - first);
    int64_t begin = 0, end = a.length;
    if (a.reach >= 0) {
      const auto [nearest, farthest] =
          std::minmax_element(a.query_positions + first, a.query_positions + first + num_queries);
      begin = std::max<int64_t>(0, *nearest - a.reach);
      end = std::min(a.length, *farthest + a.reach + 1);
    }
    transpose_queries<Ops>(a, first, num_queries, queries);
    for (int64_t k = begin; k < end; k += kKeyBlock) {
      score_keys<Ops>(a.keys + k * a.key_stride, a.key_stride, std::min<int64_t>(kKeyBlock, end - k), queries,
                      a.head_size, scores + (k - begin) * kWidth);
    }
    if (a.reach >= 0) hide_far_keys<Ops>(a, first, num_queries, begin, end, scores);
    alignas(64) float factors[kWidth];
    Ops::store(factors, exponentiate<Ops>(scores, end - begin, a.scale));
    for (int64_t q = 0; q < num_queries; q += kQueryBlock) {
      for (int64_t i = 0; i < a.head_size; i += kWidth) {
        mix_values<Ops>(scores + q, factors + q, std::min<int64_t>(kQueryBlock, num_queries - q),
                        values + begin * value_stride + i, value_stride, end - begin,
                        a.output + (first + q) * a.output_stride + i, a.output_stride,
                        std::min<int64_t>(kWidth, a.head_size - i));
      }
    }
  }
}

// The sum of term(i) for the vectors from 0 up to `whole`, several side by side.
template <class Ops, class Term>
float sum_vectors(int64_t whole, const Term& term) {
  constexpr int kSums = 4, kStep = kSums * Ops::kWidth;
  typename Ops::Vec sums[kSums];
  for (auto& sum : sums) sum = Ops::set1(0.0f);
  int64_t i = 0;
  for (; i + kStep <= whole; i += kStep) {
#pragma GCC unroll 4
    for (int s = 0; s < kSums; ++s) sums[s] = term(i + s * Ops::kWidth, sums[s]);
  }
  for (; i < whole; i += Ops::kWidth) sums[0] = term(i, sums[0]);
  return Ops::reduce_add(Ops::add(Ops::add(sums[0], sums[1]), Ops::add(sums[2], sums[3])));
}

template <class Ops>
void layer_norm(const float* x, int64_t size, const float* weight, const float* bias, float eps, float* y) {
  using Vec = typename Ops::Vec;
  const int64_t whole = size / Ops::kWidth * Ops::kWidth;
  float total = sum_vectors<Ops>(whole, [&](int64_t i, Vec sum) { return Ops::add(sum, Ops::load_unaligned(x + i)); });
  for (int64_t i = whole; i < size; ++i) total += x[i];
  const float mean = total / static_cast<float>(size);

  const Vec centre = Ops::set1(mean);
  total = sum_vectors<Ops>(whole, [&](int64_t i, Vec sum) {
    const Vec d = Ops::sub(Ops::load_unaligned(x + i), centre);
    return Ops::fma(d, d, sum);
  });
  for (int64_t i = whole; i < size; ++i) total += (x[i] - mean) * (x[i] - mean);
  const float inverse = 1.0f / std::sqrt(total / static_cast<float>(size) + eps);

  const Vec factor = Ops::set1(inverse);
  for (int64_t i = 0; i < whole; i += Ops::kWidth) {
    const Vec normal = Ops::mul(Ops::sub(Ops::load_unaligned(x + i), centre), factor);
    const Vec offset = bias == nullptr ? Ops::set1(0.0f) : Ops::load_unaligned(bias + i);
    Ops::store_unaligned(y + i, Ops::fma(normal, Ops::load_unaligned(weight + i), offset));
  }
  for (int64_t i = whole; i < size; ++i) {
    y[i] = (x[i] - mean) * inverse * weight[i] + (bias == nullptr ? 0.0f : bias[i]);
  }
}

template <class Ops>
void rotate(float* x, const float* cosines, const float* sines, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    x[i] = a * cosines[i] - b * sines[i];
    x[half + i] = b * cosines[i] + a * sines[i];
  }
}

template <class Ops>
void add_rows(const float* a, const float* b, int64_t size, float* out) {
  for (int64_t i = 0; i < size; ++i) out[i] = a[i] + b[i];
}

template <class Ops>
constexpr SequenceKernels make_sequence_kernels() {
  return {Ops::kWidth,     attend<Ops>, attention_scratch<Ops>, layer_norm<Ops>,
          rotate<Ops>, add_rows<Ops>};
}

}  // namespace
}  // namespace mlmfast
