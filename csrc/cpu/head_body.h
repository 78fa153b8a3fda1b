// The head's kernels, written once over a struct of vector operations (vec_*.h). Each instruction set
// compiles its own copy in an unnamed namespace, so the linker never mixes code of two sets.
#pragma once

#include <limits>

#include "cpu/exp.h"
#include "cpu/head_kernels.h"

namespace mlmfast {
namespace {

template <class Ops, bool kWeighted, bool kSquares>
LogitSums sum_exp(const float* logits, int64_t size) {
  using Vec = typename Ops::Vec;
  LogitSums result;
  Vec max_even = Ops::set1(result.max), max_odd = max_even;
  for (int64_t i = 0; i < size; i += 2 * Ops::kWidth) {
    max_even = Ops::max(max_even, Ops::load(logits + i));
    max_odd = Ops::max(max_odd, Ops::load(logits + i + Ops::kWidth));
  }
  const float max = Ops::reduce_max(Ops::max(max_even, max_odd));
  if (max > result.max) result.max = max;

  const Vec shift = Ops::set1(result.max), lowest = Ops::set1(kExpLowest);
  const Vec below_zero = Ops::set1(-std::numeric_limits<float>::min()), one = Ops::set1(1.0f);
  const Vec zero = Ops::set1(0.0f);
  Vec num_max = zero, rest = zero, weighted = zero, squares = zero;
  for (int64_t i = 0; i < size; i += Ops::kWidth) {
    const Vec x = Ops::sub(Ops::load(logits + i), shift);
    // Compared so that NaN goes to the rest and stays.
    const Vec e = Ops::if_less(below_zero, x, zero, exp<Ops>(x));
    num_max = Ops::add(num_max, Ops::if_less(below_zero, x, one, zero));
    rest = Ops::add(rest, e);
    // The bound keeps 0 * -inf out of the sum.
    if constexpr (kWeighted) weighted = Ops::fma(e, Ops::max(lowest, x), weighted);
    if constexpr (kSquares) squares = Ops::fma(e, e, squares);
  }
  result.num_max = Ops::reduce_add(num_max);
  result.rest = Ops::reduce_add(rest);
  result.rest_weighted = Ops::reduce_add(weighted);
  result.rest_squares = Ops::reduce_add(squares);
  return result;
}

template <class Ops>
float sum(const float* logits, int64_t size) {
  const int64_t whole = size / Ops::kWidth * Ops::kWidth;
  typename Ops::Vec lanes = Ops::set1(0.0f);
  for (int64_t i = 0; i < whole; i += Ops::kWidth) lanes = Ops::add(lanes, Ops::load(logits + i));
  float total = Ops::reduce_add(lanes);
  for (int64_t i = whole; i < size; ++i) total += logits[i];
  return total;
}

template <class Ops>
TailSums sum_below(const float* logits, int64_t size, float threshold) {
  using Vec = typename Ops::Vec;
  const Vec limit = Ops::set1(threshold), zero = Ops::set1(0.0f);
  const int64_t whole = size / Ops::kWidth * Ops::kWidth;
  TailSums tail;
  Vec lanes = zero;
  for (int64_t i = 0; i < whole; i += Ops::kWidth) {
    const Vec z = Ops::load(logits + i);
    tail.count += __builtin_popcount(Ops::greater_bits(limit, z));
    lanes = Ops::add(lanes, Ops::if_less(z, limit, z, zero));
  }
  tail.sum = Ops::reduce_add(lanes);
  for (int64_t i = whole; i < size; ++i) {
    if (!(logits[i] < threshold)) continue;
    ++tail.count;
    tail.sum += logits[i];
  }
  return tail;
}

template <class Ops>
void add(const float* a, const float* b, int64_t size, float* sum) {
  for (int64_t i = 0; i < size; i += Ops::kWidth) {
    Ops::store(sum + i, Ops::add(Ops::load(a + i), Ops::load(b + i)));
  }
}

template <class Ops>
int64_t count_greater(const float* logits, int64_t size, float threshold) {
  const typename Ops::Vec limit = Ops::set1(threshold);
  int64_t count = 0;
  for (int64_t i = 0; i < size; i += Ops::kWidth) {
    count += __builtin_popcount(Ops::greater_bits(Ops::load(logits + i), limit));
  }
  return count;
}

template <class Ops>
int64_t find_greater(const float* logits, int64_t begin, int64_t size, float threshold) {
  const typename Ops::Vec limit = Ops::set1(threshold);
  for (int64_t i = begin; i < size; i += Ops::kWidth) {
    const uint32_t bits = Ops::greater_bits(Ops::load_unaligned(logits + i), limit);
    if (bits != 0) {
      const int64_t found = i + __builtin_ctz(bits);
      return found < size ? found : size;
    }
  }
  return size;
}

template <class Ops>
constexpr HeadKernels make_head_kernels() {
  return {{{sum_exp<Ops, false, false>, sum_exp<Ops, false, true>},
           {sum_exp<Ops, true, false>, sum_exp<Ops, true, true>}},
          add<Ops>,
          count_greater<Ops>,
          find_greater<Ops>,
          sum<Ops>,
          sum_below<Ops>};
}

}  // namespace
}  // namespace mlmfast
