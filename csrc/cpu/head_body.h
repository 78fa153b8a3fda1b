// The head's kernels, written once over a struct of vector operations (vec_*.h). Each instruction set
// compiles its own copy in an unnamed namespace, so the linker never mixes code of two sets.
#pragma once

#include "cpu/exp.h"
#include "cpu/head_kernels.h"

namespace mlmfast {
namespace {

template <class Ops, bool kWithEntropy>
LogSumExp log_sum_exp(const float* logits, int64_t size) {
  using Vec = typename Ops::Vec;
  LogSumExp result;
  Vec max_even = Ops::set1(result.max), max_odd = max_even;
  for (int64_t i = 0; i < size; i += 2 * Ops::kWidth) {
    max_even = Ops::max(max_even, Ops::load(logits + i));
    max_odd = Ops::max(max_odd, Ops::load(logits + i + Ops::kWidth));
  }
  const float max = Ops::reduce_max(Ops::max(max_even, max_odd));
  if (max > result.max) result.max = max;

  const Vec shift = Ops::set1(result.max), lowest = Ops::set1(kExpLowest);
  Vec sum = Ops::set1(0.0f), weighted_sum = sum;
  for (int64_t i = 0; i < size; i += Ops::kWidth) {
    const Vec x = Ops::sub(Ops::load(logits + i), shift);
    const Vec e = exp<Ops>(x);
    sum = Ops::add(sum, e);
    // The bound keeps 0 * -inf out of the sum.
    if constexpr (kWithEntropy) weighted_sum = Ops::fma(e, Ops::max(lowest, x), weighted_sum);
  }
  result.sum = Ops::reduce_add(sum);
  if constexpr (kWithEntropy) result.weighted_sum = Ops::reduce_add(weighted_sum);
  return result;
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
  return {log_sum_exp<Ops, false>, log_sum_exp<Ops, true>, add<Ops>, count_greater<Ops>, find_greater<Ops>};
}

}  // namespace
}  // namespace mlmfast
