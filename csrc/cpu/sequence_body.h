// The sequence kernels, written once over a struct of vector operations (vec_*.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/exp.h"
#include "cpu/sequence_kernels.h"

namespace mlmfast {
namespace {

constexpr int64_t kQueryRows = 8;  // queries that share each load of a key or a value

template <class Ops>
int64_t padded(int64_t size) {
  return (size + Ops::kWidth - 1) / Ops::kWidth * Ops::kWidth;
}

// Scratch of one head: transposed keys [head_size, padded length], values [length, padded head_size],
// scores [kQueryRows, padded length], outputs [kQueryRows, padded head_size].
template <class Ops>
int64_t attention_scratch(int64_t length, int64_t head_size) {
  const int64_t columns = padded<Ops>(length), features = padded<Ops>(head_size);
  return head_size * columns + length * features + kQueryRows * (columns + features);
}

// scores[r, j] = queries[r] . keys[j] for the keys [begin, end), whole vectors.
template <class Ops, int kRows>
void score_keys(const float* queries, int64_t query_stride, const float* keys, int64_t columns,
                int64_t head_size, int64_t begin, int64_t end, float* scores) {
  using Vec = typename Ops::Vec;
  for (int64_t j = begin; j < end; j += Ops::kWidth) {
    Vec sum[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sum[r] = Ops::set1(0.0f);
    for (int64_t i = 0; i < head_size; ++i) {
      const Vec key = Ops::load(keys + i * columns + j);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sum[r] = Ops::fma(Ops::set1(queries[r * query_stride + i]), key, sum[r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) Ops::store(scores + r * columns + j, sum[r]);
  }
}

// Scores of the keys [begin, end) to exp(scale (score - max)); returns their sum. Keys outside
// [first, last) get 0.
template <class Ops>
float exponentiate(float* scores, int64_t begin, int64_t end, int64_t first, int64_t last, float scale) {
  using Vec = typename Ops::Vec;
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  std::fill(scores + begin, scores + first, kNone);
  std::fill(scores + last, scores + end, kNone);
  Vec max = Ops::set1(kNone);
  for (int64_t j = begin; j < end; j += Ops::kWidth) max = Ops::max(max, Ops::load(scores + j));
  const Vec factor = Ops::set1(scale), shift = Ops::set1(-Ops::reduce_max(max) * scale);
  Vec sum = Ops::set1(0.0f);
  for (int64_t j = begin; j < end; j += Ops::kWidth) {
    const Vec e = exp<Ops>(Ops::fma(Ops::load(scores + j), factor, shift));
    Ops::store(scores + j, e);
    sum = Ops::add(sum, e);
  }
  return Ops::reduce_add(sum);
}

// outputs[r] = sum over the keys [begin, end) of weights[r, j] values[j].
template <class Ops, int kRows>
void mix_values(const float* weights, int64_t columns, const float* values, int64_t features, int64_t begin,
                int64_t end, float* outputs) {
  using Vec = typename Ops::Vec;
  for (int64_t i = 0; i < features; i += Ops::kWidth) {
    Vec sum[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sum[r] = Ops::set1(0.0f);
    for (int64_t j = begin; j < end; ++j) {
      const Vec value = Ops::load(values + j * features + i);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sum[r] = Ops::fma(Ops::set1(weights[r * columns + j]), value, sum[r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) Ops::store(outputs + r * features + i, sum[r]);
  }
}

template <class Ops, int kRows = kQueryRows>
void attend_block(const HeadAttention& a, int64_t first_query, int64_t num_queries, const float* keys,
                  const float* values, float* scores, float* outputs) {
  if constexpr (kRows > 1) {
    if (num_queries < kRows) {
      return attend_block<Ops, kRows - 1>(a, first_query, num_queries, keys, values, scores, outputs);
    }
  }
  const int64_t columns = padded<Ops>(a.length), features = padded<Ops>(a.head_size);
  int64_t first[kRows], last[kRows], begin = a.length, end = 0;
  for (int r = 0; r < kRows; ++r) {
    const int64_t position = a.query_positions[first_query + r];
    first[r] = a.reach < 0 ? 0 : std::max<int64_t>(0, position - a.reach);
    last[r] = a.reach < 0 ? a.length : std::min(a.length, position + a.reach + 1);
    begin = std::min(begin, first[r]);
    end = std::max(end, last[r]);
  }
  begin = begin / Ops::kWidth * Ops::kWidth;
  const int64_t whole_end = padded<Ops>(end);
  score_keys<Ops, kRows>(a.queries + first_query * a.query_stride, a.query_stride, keys, columns, a.head_size,
                         begin, whole_end, scores);
  float sums[kRows];
  for (int r = 0; r < kRows; ++r) {
    sums[r] = exponentiate<Ops>(scores + r * columns, begin, whole_end, first[r], last[r], a.scale);
  }
  mix_values<Ops, kRows>(scores, columns, values, features, begin, end, outputs);
  for (int r = 0; r < kRows; ++r) {
    float* output = a.output + (first_query + r) * a.output_stride;
    for (int64_t i = 0; i < a.head_size; ++i) output[i] = outputs[r * features + i] / sums[r];
  }
}

template <class Ops>
void attend(const HeadAttention& a, float* scratch) {
  const int64_t columns = padded<Ops>(a.length), features = padded<Ops>(a.head_size);
  float* keys = scratch;
  float* values = keys + a.head_size * columns;
  float* scores = values + a.length * features;
  float* outputs = scores + kQueryRows * columns;
  for (int64_t i = 0; i < a.head_size; ++i) {
    float* row = keys + i * columns;
    for (int64_t j = 0; j < a.length; ++j) row[j] = a.keys[j * a.key_stride + i];
    std::fill(row + a.length, row + columns, 0.0f);
  }
  for (int64_t j = 0; j < a.length; ++j) {
    float* row = values + j * features;
    std::copy_n(a.values + j * a.key_stride, a.head_size, row);
    std::fill(row + a.head_size, row + features, 0.0f);
  }
  for (int64_t q = 0; q < a.num_queries; q += kQueryRows) {
    attend_block<Ops>(a, q, std::min(kQueryRows, a.num_queries - q), keys, values, scores, outputs);
  }
}

template <class Ops>
void layer_norm(const float* x, int64_t size, const float* weight, const float* bias, float eps, float* y) {
  using Vec = typename Ops::Vec;
  const int64_t whole = size / Ops::kWidth * Ops::kWidth;
  Vec sum = Ops::set1(0.0f);
  for (int64_t i = 0; i < whole; i += Ops::kWidth) sum = Ops::add(sum, Ops::load_unaligned(x + i));
  float total = Ops::reduce_add(sum);
  for (int64_t i = whole; i < size; ++i) total += x[i];
  const float mean = total / static_cast<float>(size);

  const Vec centre = Ops::set1(mean);
  sum = Ops::set1(0.0f);
  for (int64_t i = 0; i < whole; i += Ops::kWidth) {
    const Vec d = Ops::sub(Ops::load_unaligned(x + i), centre);
    sum = Ops::fma(d, d, sum);
  }
  total = Ops::reduce_add(sum);
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
