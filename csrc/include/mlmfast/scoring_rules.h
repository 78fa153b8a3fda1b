// Scoring rules of a softmax as losses (negative scores), and their gradients by the logits in closed form
// (Shao et al. 2024, section 3; Gneiting & Raftery 2007).
#pragma once

#include <cstdint>
#include <string>

#include "mlmfast/logit_sums.h"

namespace mlmfast {

enum class Rule { log, brier, spherical };

// Throws std::invalid_argument for an unknown name.
Rule rule_from_name(const std::string& name);

struct ScoringRule {
  Rule rule = Rule::log;
  double smoothing = 0;     // eps: eps / V of the target's probability goes to every class
  bool masked_log = false;  // whether what smoothing gives to classes below eps / V is scored by their log

  bool has_tail() const { return masked_log && smoothing > 0 && rule != Rule::log; }
};

// With p_k = exp(logit_k - lse), the gradient by the logit of class k is
// a p_k + b p_k^2 + u + d [p_k < eps / V], and target_gradient for the target.
struct LossAndGradient {
  double loss, lse, a, b, u, d, target_gradient;
};

// sums with rest_squares and total; tail over the logits below tail_threshold, where the rule has one.
LossAndGradient evaluate(const ScoringRule& rule, int64_t vocab_size, double target_logit, const LogitSums& sums,
                         const TailSums& tail);

// The logit of a class whose probability is eps / V.
double tail_threshold(const ScoringRule& rule, int64_t vocab_size, const LogitSums& sums);

}  // namespace mlmfast
