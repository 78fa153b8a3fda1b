#include "mlmfast/scoring_rules.h"

#include <cmath>
#include <stdexcept>

namespace mlmfast {

Rule rule_from_name(const std::string& name) {
  if (name == "log") return Rule::log;
  if (name == "brier") return Rule::brier;
  if (name == "spherical") return Rule::spherical;
  throw std::invalid_argument("scoring rule '" + name + "' is unknown; use log, brier or spherical");
}

double tail_threshold(const ScoringRule& rule, int64_t vocab_size, const LogitSums& sums) {
  return log_sum_exp(sums) + std::log(rule.smoothing / static_cast<double>(vocab_size));
}

LossAndGradient evaluate(const ScoringRule& rule, int64_t vocab_size, double target_logit, const LogitSums& sums,
                         const TailSums& tail) {
  const double eps = rule.smoothing, h = eps / static_cast<double>(vocab_size);
  // All but one class at the max, over e^max.
  const double others = double{sums.num_max} - 1 + sums.rest;
  const double other_squares = double{sums.num_max} - 1 + sums.rest_squares;
  const double total = 1 + others, log_total = std::log1p(others), lse = sums.max + log_total;
  const double log_p = (target_logit - sums.max) - log_total, p = std::exp(log_p);
  const double squares = (1 + other_squares) / (total * total);
  // What the target leaves to the others, which must not be lost where p is near 1.
  const bool is_max = target_logit >= sums.max;
  const double rest = is_max ? others / total : 1 - p;
  const double rest_squares = is_max ? other_squares / (total * total) : squares - p * p;

  LossAndGradient r{};
  r.lse = lse;
  switch (rule.rule) {
    case Rule::log:
      r.loss = -(1 - eps) * log_p;
      if (eps > 0) r.loss += h * (static_cast<double>(vocab_size) * lse - sums.total);
      r.a = 1;
      r.u = -h;
      r.target_gradient = eps - h - rest;
      break;
    case Rule::brier:
      r.loss = squares - 2 * (1 - eps) * p - 2 * h;
      r.a = 2 * (p * (rest - eps) - rest_squares);
      r.b = 2;
      r.target_gradient = 2 * p * (rest * (eps - rest) - rest_squares);
      break;
    case Rule::spherical: {
      const double norm = std::sqrt(squares);
      r.loss = -((1 - eps) * p + h) / norm;
      r.a = -h / norm;
      r.b = ((1 - eps) * p + h) / (norm * squares);
      r.target_gradient = p / norm * (h * (p * rest - rest_squares) - (1 - eps) * rest_squares) / squares;
      break;
    }
  }
  if (rule.has_tail()) {
    r.loss -= h * (tail.sum - static_cast<double>(tail.count) * lse);
    const double share = h * static_cast<double>(tail.count);
    r.a += share;
    r.d = -h;
    r.target_gradient += share * p + (p < h ? r.d : 0);
  }
  return r;
}

}  // namespace mlmfast
