// Activations over a vector, for any of the vector-operation structs (vec_*.h). NaN gives NaN.
#pragma once

#include "cpu/exp.h"
#include "mlmfast/matrix.h"

namespace mlmfast {
namespace {

// Phi(x) = 1/2 + x p(scale x^2 - 1) for |x| <= limit, p by least squares reweighted towards the minimax.
template <int kSize>
struct NormalCdf {
  float limit, scale;
  float coefficients[kSize];  // highest power first
};

// Phi within 2e-7 and x Phi(x) within 1e-6 everywhere.
constexpr NormalCdf<15> kFineNormalCdf = {
    5.4f,
    0.0685871f,
    {0.00033130238f, -0.0009799786f, 0.0010590813f, -0.0013251357f, 0.0034461229f, -0.0065640267f,
     0.009770626f, -0.014041533f, 0.019611629f, -0.025727104f, 0.032120924f, -0.039208826f, 0.04849939f,
     -0.065327995f, 0.13092811f}};

// Phi within 1e-5 and x Phi(x) within 3e-5: far less than bfloat16 rounds off.
constexpr NormalCdf<10> kCoarseNormalCdf = {
    4.4f,
    0.10330579f,
    {-0.0012960947f, 0.0038535292f, -0.0057174773f, 0.00925023f, -0.01711944f, 0.027633002f, -0.039883725f,
     0.055128757f, -0.078621015f, 0.16040705f}};

// Phi within 7e-4 and x Phi(x) within 1.1e-3: a tenth of what int8 rounds off a row whose largest value is 1.
constexpr NormalCdf<5> kRoughNormalCdf = {
    3.4f, 0.17301038f, {0.011782371f, -0.033034265f, 0.054437287f, -0.09058126f, 0.20444416f}};

template <class Ops, int kSize>
typename Ops::Vec gelu(typename Ops::Vec x, const NormalCdf<kSize>& cdf) {
  using Vec = typename Ops::Vec;
  // Below -limit the result stays the tiny one at -limit.
  const Vec bounded_below = Ops::max(Ops::set1(-cdf.limit), x);
  const Vec bounded = Ops::min(Ops::set1(cdf.limit), bounded_below);
  const Vec s = Ops::fma(Ops::mul(bounded, bounded), Ops::set1(cdf.scale), Ops::set1(-1.0f));
  Vec p = Ops::set1(cdf.coefficients[0]);
#pragma GCC unroll 16
  for (int i = 1; i < kSize; ++i) p = Ops::fma(p, s, Ops::set1(cdf.coefficients[i]));
  return Ops::mul(bounded_below, Ops::fma(bounded, p, Ops::set1(0.5f)));
}

// x / (1 + exp(-y)).
template <class Ops>
typename Ops::Vec times_logistic(typename Ops::Vec x, typename Ops::Vec y) {
  const auto bounded =
      Ops::min(Ops::set1(80.0f), Ops::sub(Ops::set1(0.0f), y));  // keeps the reciprocal normal
  return Ops::mul(x, Ops::reciprocal(Ops::add(Ops::set1(1.0f), exp<Ops>(bounded))));
}

template <class Ops, Activation kActivation, const auto& kNormalCdf>
typename Ops::Vec activate(typename Ops::Vec x) {
  using Vec = typename Ops::Vec;
  if constexpr (kActivation == Activation::gelu) {
    return gelu<Ops>(x, kNormalCdf);
  } else if constexpr (kActivation == Activation::gelu_tanh) {
    // (1 + tanh u) / 2 is the logistic function of 2u, u = sqrt(2 / pi) (x + 0.044715 x^3).
    const Vec factor = Ops::fma(Ops::mul(x, x), Ops::set1(0.0713548163f), Ops::set1(1.5957691216f));
    return times_logistic<Ops>(x, Ops::mul(x, factor));
  } else if constexpr (kActivation == Activation::relu) {
    return Ops::max(Ops::set1(0.0f), x);
  } else if constexpr (kActivation == Activation::silu) {
    return times_logistic<Ops>(x, x);
  } else {
    return x;
  }
}

}  // namespace
}  // namespace mlmfast
