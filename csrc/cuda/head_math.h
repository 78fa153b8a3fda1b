// The arithmetic of the head for one row: sums over classes that can be joined in any order, and what they give. For
// the host and the device alike.
#pragma once

#include <cmath>

#include "host_device.h"

namespace mlmfast::cuda {

// Sums over the classes seen so far. The largest logit's own term, which is 1, is left out: beside it the others would
// round away, and 1 - p with them.
struct alignas(16) HeadSums {
  float max = -INFINITY;       // largest logit
  float rest = 0.0f;           // sum of exp(z - max) over the other classes
  float rest_weighted = 0.0f;  // sum of exp(z - max) (z - max) over them, from which the entropy follows
};

// exp(-104) is 0 in float32; the bound keeps 0 * -inf out of the sums. NaN stays.
MLMFAST_HOST_DEVICE float bounded_gap(float gap) { return gap < -104.0f ? -104.0f : gap; }

// What the sums add to those of a larger maximum, their own largest class included.
MLMFAST_HOST_DEVICE HeadSums rescaled(const HeadSums& sums, float max) {
  const float gap = sums.max == -INFINITY ? -104.0f : bounded_gap(sums.max - max);
  const float scale = expf(gap), total = sums.rest + 1.0f;
  return {max, scale * total, scale * (sums.rest_weighted + gap * total)};
}

// Makes `max`, the logit of a class that is now left out, the largest if it is larger; the one before joins the rest.
MLMFAST_HOST_DEVICE void raise_max(HeadSums& sums, float max) {
  if (max > sums.max) sums = rescaled(sums, max);
}

// Adds a class that is not the one left out; z <= sums.max, or z is NaN, which stays.
MLMFAST_HOST_DEVICE void add_class(HeadSums& sums, float z) {
  const float gap = bounded_gap(z - (sums.max == -INFINITY ? 0.0f : sums.max));
  const float e = expf(gap);
  sums.rest += e;
  sums.rest_weighted += e * gap;
}

MLMFAST_HOST_DEVICE HeadSums joined(const HeadSums& a, const HeadSums& b) {
  const bool b_is_higher = b.max > a.max;
  const HeadSums high = b_is_higher ? b : a;
  const HeadSums lower = b_is_higher ? a : b;
  const HeadSums low = rescaled(lower, high.max);
  return {high.max, high.rest + low.rest, high.rest_weighted + low.rest_weighted};
}

// log of the sum of exp(z - max) over all classes; NaN where a logit is NaN or the largest one is infinite.
MLMFAST_HOST_DEVICE float log_total(const HeadSums& sums) { return log1pf(sums.rest) + (sums.max - sums.max); }

MLMFAST_HOST_DEVICE float log_sum_exp(const HeadSums& sums) { return sums.max + log_total(sums); }

MLMFAST_HOST_DEVICE float log_prob(const HeadSums& sums, float logit) { return (logit - sums.max) - log_total(sums); }

MLMFAST_HOST_DEVICE float entropy(const HeadSums& sums) {
  return log_total(sums) - sums.rest_weighted / (1.0f + sums.rest);
}

}  // namespace mlmfast::cuda
