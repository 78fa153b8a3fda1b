// The arithmetic of the scoring rules for one row: sums over classes that can be joined in any order, the loss and
// the coefficients they give, and the gradient of a logit. For the host and the device alike.
//
// With p = softmax(z), y the target, s the smoothing, h = s / classes (the masked-log term left out):
//   log:       -(1 - s) log p_y - h sum log p
//   Brier:     sum p^2 - 2 (1 - s) p_y - 2 h
//   spherical: -((1 - s) p_y + h) / sqrt(sum p^2)
// The masked-log term -h sum {log p_j : p_j < h} is added to the last two. (Shao et al. 2024, "Language Generation
// with Strictly Proper Scoring Rules", sections 3 and 4.)
#pragma once

#include <cmath>
#include <cstdint>

#include "host_device.h"

namespace mlmfast::cuda {

enum class Rule : int32_t { kLog = 0, kBrier = 1, kSpherical = 2 };

struct RuleSettings {
  Rule rule;
  float smoothing;
  float target_share;  // 1 - smoothing
  float class_share;   // h
  bool masked_log;     // false where there is nothing to add: the log score, or no smoothing
};

// Sums over the classes seen so far. The largest logit's own terms, which are 1, are left out of the sums of
// exponentials: beside them the others would round away, and 1 - p with them.
struct alignas(16) ClassSums {
  float max;           // largest logit
  float rest;          // sum of exp(z - max) over the other classes
  float rest_squared;  // sum of exp(2 (z - max)) over the other classes
  float logits;        // sum of z over all
};

// Sums over the classes with p < h.
struct alignas(8) MaskedSums {
  int32_t count;
  float log_probs;
};

// The columns of a row of coefficients. The gradient of the loss by z_k is
// A p_k + B p_k^2 + U + D [p_k < h] for k != y (C is 0 at alpha 2), target_gradient for k = y.
struct Coefficients {
  float lse, A, B, C, U, D, target_gradient;
};
constexpr int kNumCoefficients = 7;

struct RowResult {
  float loss;
  Coefficients coefficients;
};

MLMFAST_HOST_DEVICE ClassSums no_classes() { return {-INFINITY, 0.0f, 0.0f, 0.0f}; }

// Makes `max`, the logit of a class that is now left out, the largest if it is larger; the one before joins the rest.
MLMFAST_HOST_DEVICE void raise_max(ClassSums& sums, float max) {
  if (!(max > sums.max)) return;
  const float scale = expf(sums.max - max);
  sums.rest = (sums.rest + 1.0f) * scale;
  sums.rest_squared = (sums.rest_squared + 1.0f) * (scale * scale);
  sums.max = max;
}

// Adds a class that is not the one left out; z <= sums.max, or z is NaN, which stays.
MLMFAST_HOST_DEVICE void add_class(ClassSums& sums, float z) {
  const float e = expf(z - (sums.max == -INFINITY ? 0.0f : sums.max));
  sums.rest += e;
  sums.rest_squared += e * e;
}

MLMFAST_HOST_DEVICE ClassSums joined(const ClassSums& a, const ClassSums& b) {
  const bool b_is_higher = b.max > a.max;
  const ClassSums high = b_is_higher ? b : a;
  const ClassSums low = b_is_higher ? a : b;
  const float scale = low.max == -INFINITY ? 0.0f : expf(low.max - high.max);
  return {high.max, high.rest + (low.rest + 1.0f) * scale,
          high.rest_squared + (low.rest_squared + 1.0f) * (scale * scale), a.logits + b.logits};
}

MLMFAST_HOST_DEVICE MaskedSums joined(const MaskedSums& a, const MaskedSums& b) {
  return {a.count + b.count, a.log_probs + b.log_probs};
}

MLMFAST_HOST_DEVICE float log_sum_exp(const ClassSums& sums) { return sums.max + log1pf(sums.rest); }

MLMFAST_HOST_DEVICE void add_if_masked(MaskedSums& sums, const RuleSettings& settings, float z, float lse) {
  const float log_prob = z - lse;
  if (expf(log_prob) < settings.class_share) {
    ++sums.count;
    sums.log_probs += log_prob;
  }
}

// A row whose target is ignored: no loss, and a lse that makes every probability 0.
MLMFAST_HOST_DEVICE RowResult ignored_row() { return {0.0f, {INFINITY, 0, 0, 0, 0, 0, 0}}; }

// NaN where a logit is NaN or the largest one is infinite.
MLMFAST_HOST_DEVICE RowResult row_result(const RuleSettings& settings, const ClassSums& sums, float target_logit,
                                         const MaskedSums& masked) {
  const float s = settings.smoothing, share = settings.target_share, h = settings.class_share;
  const float one = 1.0f + (sums.max - sums.max);  // exp(max - max), which is NaN where max is infinite
  const float R = sums.rest, R2 = sums.rest_squared;
  const float total = one + R;
  const float log_total = log1pf(R) + (one - 1.0f);
  const float lse = sums.max + log_total;
  const float target_exp = expf(target_logit - sums.max);
  const float p = target_exp / total;
  const float log_p = (target_logit - sums.max) - log_total;
  // Where the target has the largest logit, whatever would be a difference of numbers near 1 is written out in the
  // rest: 1 - p = R / total, p - sum p^2 = (R - R2) / total^2, and so on. Where another class has, p <= 1/2.
  const bool target_is_max = target_logit == sums.max;

  RowResult result{0.0f, {lse, 0, 0, 0, 0, 0, 0}};
  Coefficients& c = result.coefficients;
  if (settings.rule == Rule::kLog) {
    const float others = target_is_max ? R / total : 1.0f - p;
    result.loss = -share * log_p;
    if (s > 0.0f) result.loss -= h * sums.logits - s * lse;
    c.A = 1.0f;
    c.U = -h;
    c.target_gradient = (s - others) - h;
  } else if (settings.rule == Rule::kBrier) {
    const float squares = (one + R2) / (total * total);
    result.loss = squares - 2.0f * share * p - 2.0f * h;
    c.A = 2.0f * (target_is_max ? (R - R2) / (total * total) - s * p : share * p - squares);
    c.B = 2.0f;
    c.target_gradient =
        2.0f * p *
        (target_is_max ? (s * R - R2 - share * R * R) / (total * total) : (share + 1.0f) * p - squares - share);
  } else {
    const float scaled_squares = one + R2;  // sum p^2 = scaled_squares / total^2
    const float inverse_root = 1.0f / sqrtf(scaled_squares);
    const float inverse_norm = total * inverse_root;
    const float score = (share * target_exp + h * total) * inverse_root;
    result.loss = -score;
    c.A = -h * inverse_norm;
    c.B = score * inverse_norm * inverse_norm;
    c.target_gradient =
        target_exp * inverse_root *
        (target_is_max ? (h * R - (share + h) * R2) / scaled_squares
                       : target_exp * (share * target_exp + h * total) / scaled_squares - share - h);
  }
  if (settings.masked_log) {
    const float count = h * static_cast<float>(masked.count);
    result.loss -= h * masked.log_probs;
    c.A += count;
    c.D = -h;
    c.target_gradient += count * p - (expf(target_logit - lse) < h ? h : 0.0f);
  }
  return result;
}

MLMFAST_HOST_DEVICE float logit_gradient(const Coefficients& c, float class_share, float z, bool is_target) {
  if (c.lse == INFINITY) return 0.0f;
  if (is_target) return c.target_gradient;
  const float p = expf(z - c.lse);
  return (c.A + c.B * p) * p + c.U + (p < class_share ? c.D : 0.0f);
}

}  // namespace mlmfast::cuda
