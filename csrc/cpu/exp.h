// exp over a vector, for any of the vector-operation structs (vec_*.h).
#pragma once

#include <limits>

namespace mlmfast {
namespace {

constexpr float kExpLowest = -87.33654f;  // below it exp is smaller than any normal float
constexpr float kExpHighest = 88.72283f;  // above it exp is larger than any float

// exp(x) to about 1 ulp; 0 below kExpLowest (-inf included), inf above kExpHighest, NaN for NaN.
// Cody-Waite reduction and the polynomial of Cephes expf (Moshier, 1989).
template <class Ops>
[[gnu::always_inline]] inline typename Ops::Vec exp(typename Ops::Vec x) {
  using Vec = typename Ops::Vec;
  const Vec lowest = Ops::set1(kExpLowest), highest = Ops::set1(kExpHighest);
  const Vec clamped = Ops::min(highest, Ops::max(lowest, x));
  const Vec n = Ops::round(Ops::mul(clamped, Ops::set1(1.44269504f)));
  Vec r = Ops::fma(n, Ops::set1(-0.693359375f), clamped);
  r = Ops::fma(n, Ops::set1(2.12194440e-4f), r);
  Vec p = Ops::set1(1.9875691500e-4f);
  p = Ops::fma(p, r, Ops::set1(1.3981999507e-3f));
  p = Ops::fma(p, r, Ops::set1(8.3334519073e-3f));
  p = Ops::fma(p, r, Ops::set1(4.1665795894e-2f));
  p = Ops::fma(p, r, Ops::set1(1.6666665459e-1f));
  p = Ops::fma(p, r, Ops::set1(5.0000001201e-1f));
  p = Ops::add(Ops::fma(p, Ops::mul(r, r), r), Ops::set1(1.0f));
  Vec y = Ops::times_power_of_two(p, n);
  y = Ops::if_less(x, lowest, Ops::set1(0.0f), y);
  return Ops::if_less(highest, x, Ops::set1(std::numeric_limits<float>::infinity()), y);
}

}  // namespace
}  // namespace mlmfast
