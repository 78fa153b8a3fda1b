// The scoring rules from their definitions, in extended precision: no coefficients, no closed forms, no tiles.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cuda/rule_math.h"

namespace mlmfast::testing {

struct ReferenceRow {
  double lse = 0, loss = 0;
  std::vector<double> probabilities, logit_gradients;
  // Classes so near to p = h that float32 may put them on the other side of the masked-log term's step, what the loss
  // and how much of every p the gradients may be off for it, and the step of a class's own gradient.
  std::vector<bool> at_step;
  double loss_slack = 0, gradient_slack = 0, step = 0;
};

// smoothing and masked_log as the problem has them.
inline ReferenceRow reference_row(cuda::Rule rule, double smoothing, bool masked_log,
                                  const std::vector<double>& logits, int64_t target) {
  using Number = long double;
  const int64_t V = static_cast<int64_t>(logits.size());
  const Number keep = 1 - Number{smoothing}, h = Number{smoothing} / V;
  const Number max = *std::max_element(logits.begin(), logits.end());
  Number total = 0;
  for (const double z : logits) total += std::exp(z - max);
  const Number lse = max + std::log(total);
  std::vector<Number> p(V), loss_by_p(V);
  Number squares = 0, log_sum = 0;
  for (int64_t k = 0; k < V; ++k) {
    p[k] = std::exp(logits[k] - max) / total;
    squares += p[k] * p[k];
    log_sum += logits[k] - lse;
  }
  const Number norm = std::sqrt(squares);
  Number loss = 0, mean = 0;
  ReferenceRow row;
  row.lse = static_cast<double>(lse);
  row.logit_gradients.resize(V);
  row.at_step.resize(V);
  if (rule == cuda::Rule::kLog) {
    loss = -keep * (logits[target] - lse) - (smoothing > 0 ? h * log_sum : 0);
    for (int64_t k = 0; k < V; ++k) row.logit_gradients[k] = static_cast<double>(p[k] - h - (k == target ? keep : 0));
  } else {
    const bool brier = rule == cuda::Rule::kBrier;
    const Number score = (keep * p[target] + h) / norm;
    loss = brier ? squares - 2 * keep * p[target] - 2 * h : -score;
    for (int64_t k = 0; k < V; ++k) {
      const Number hit = k == target ? keep : 0;
      loss_by_p[k] = brier ? 2 * (p[k] - hit) : score * p[k] / squares - hit / norm;
      // h multiplies sum p, which is 1 but has a derivative.
      loss_by_p[k] -= brier ? 2 * h : h / norm;
      if (masked_log && h > 0 && std::abs(logits[k] - lse - std::log(h)) < 3e-6 * (1 + std::abs(lse))) {
        row.at_step[k] = true;
        row.step = static_cast<double>(h);
        row.loss_slack -= static_cast<double>(h * std::log(h));
        row.gradient_slack += static_cast<double>(h);
      }
      if (masked_log && p[k] < h) {
        loss -= h * (logits[k] - lse);
        loss_by_p[k] -= h / p[k];
      }
      if (p[k] > 0) mean += p[k] * loss_by_p[k];
    }
    for (int64_t k = 0; k < V; ++k) {
      row.logit_gradients[k] = p[k] > 0 ? static_cast<double>(p[k] * (loss_by_p[k] - mean)) : 0.0;
    }
  }
  row.loss = static_cast<double>(loss);
  row.probabilities.assign(p.begin(), p.end());
  return row;
}

}  // namespace mlmfast::testing
