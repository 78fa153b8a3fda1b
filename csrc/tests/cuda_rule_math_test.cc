// The arithmetic that the CUDA kernels do per class and per row, against the definitions in extended precision.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "cuda/rule_math.h"
#include "cuda/tests/rule_reference.h"
#include "random_values.h"

namespace {

using namespace mlmfast::cuda;
using mlmfast::testing::check;
using mlmfast::testing::random_values;
using mlmfast::testing::reference_row;
using mlmfast::testing::ReferenceRow;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

RuleSettings settings_of(Rule rule, double smoothing, bool masked_log, int64_t num_classes) {
  return {rule, static_cast<float>(smoothing), static_cast<float>(1 - smoothing),
          static_cast<float>(smoothing / static_cast<double>(num_classes)),
          masked_log && smoothing > 0 && rule != Rule::kLog};
}

ClassSums sums_of(const float* logits, int64_t size) {
  ClassSums sums = no_classes();
  const float* largest = size == 0 ? nullptr : std::max_element(logits, logits + size);
  if (size > 0) raise_max(sums, *largest);
  for (const float* z = logits; z < logits + size; ++z) {
    sums.logits += *z;
    if (z != largest || sums.max == -kInfinity) add_class(sums, *z);
  }
  return sums;
}

// One by one, as a thread that sees one class per tile does.
ClassSums running_sums(const std::vector<float>& logits) {
  ClassSums sums = no_classes();
  for (const float z : logits) {
    sums.logits += z;
    if (z > sums.max) {
      raise_max(sums, z);
    } else {
      add_class(sums, z);
    }
  }
  return sums;
}

RowResult result_of(const RuleSettings& settings, const ClassSums& sums, const std::vector<float>& logits,
                    int64_t target) {
  MaskedSums masked{0, 0.0f};
  if (settings.masked_log) {
    for (const float z : logits) add_if_masked(masked, settings, z, log_sum_exp(sums));
  }
  return row_result(settings, sums, logits[target], masked);
}

bool near(double value, double expected, double relative, double absolute) {
  return std::abs(value - expected) <= relative * std::abs(expected) + absolute;
}

void test_rule(Rule rule, double smoothing, bool masked_log, const std::vector<float>& logits, int64_t target) {
  const int64_t V = static_cast<int64_t>(logits.size());
  const RuleSettings settings = settings_of(rule, smoothing, masked_log, V);
  const std::vector<double> doubles(logits.begin(), logits.end());
  const ReferenceRow expected = reference_row(rule, smoothing, masked_log, doubles, target);
  const std::string what = "rule " + std::to_string(static_cast<int>(rule)) + ", smoothing " +
                           std::to_string(smoothing) + ", " + std::to_string(V) + " classes: ";
  const int64_t cut = V / 3;
  const ClassSums all = sums_of(logits.data(), V);
  const ClassSums first = sums_of(logits.data(), cut), second = sums_of(logits.data() + cut, V - cut);
  double largest = 0;
  for (const double g : expected.logit_gradients) largest = std::max(largest, std::abs(g));
  for (const ClassSums& sums : {all, running_sums(logits), joined(first, second), joined(second, first)}) {
    const RowResult result = result_of(settings, sums, logits, target);
    check(near(result.coefficients.lse, expected.lse, 1e-6, 1e-6), what + "lse");
    check(near(result.loss, expected.loss, 4e-6, 4e-6 + expected.loss_slack), what + "loss");
    for (int64_t k = 0; k < V; ++k) {
      const float g = logit_gradient(result.coefficients, settings.class_share, logits[k], k == target);
      // p = exp(z - lse) has the relative error of a float32 lse, and a gradient may be a difference of such terms.
      const double rounding =
          (2.5e-7 * std::abs(expected.lse) + expected.gradient_slack) * expected.probabilities[k] +
          (expected.at_step[k] ? expected.step : 0.0);
      check(near(g, expected.logit_gradients[k], 1e-5, 1e-6 + 1e-5 * largest + rounding), what + "gradient");
    }
  }
}

void test_rules() {
  std::mt19937 generator(3);
  for (const int64_t V : {1, 2, 3, 251, 2000}) {
    for (const float spread : {0.0f, 1.0f, 8.0f}) {
      const std::vector<float> logits = random_values(V, spread);
      const int64_t any = generator() % V;
      const int64_t largest = std::max_element(logits.begin(), logits.end()) - logits.begin();
      for (const Rule rule : {Rule::kLog, Rule::kBrier, Rule::kSpherical}) {
        for (const int64_t target : {any, largest}) {
          test_rule(rule, 0.0, true, logits, target);
          test_rule(rule, 0.1, true, logits, target);
          test_rule(rule, 0.1, false, logits, target);
        }
      }
    }
  }
}

// The largest logit's target, so likely that 1 - p would be 0 in float32: the loss of the log score and the target's
// gradients keep their relative precision.
void test_near_one() {
  for (const float gap : {5.0f, 12.0f, 18.0f, 25.0f}) {
    const std::vector<float> logits{1.0f, 1.0f + gap, 0.5f};
    const double R = std::exp(-double{gap}) + std::exp(-double{gap} - 0.5);
    const double R2 = std::exp(-2 * double{gap}) + std::exp(-2 * double{gap} - 1.0);
    const ClassSums sums = sums_of(logits.data(), 3);
    const auto result = [&](Rule rule) { return result_of(settings_of(rule, 0, true, 3), sums, logits, 1); };
    check(near(result(Rule::kLog).loss, std::log1p(R), 1e-5, 0), "log loss near 1");
    check(near(result(Rule::kLog).coefficients.target_gradient, -R / (1 + R), 1e-5, 0), "log gradient near 1");
    const double brier = -2 * (R2 + R * R) / std::pow(1 + R, 3);
    check(near(result(Rule::kBrier).coefficients.target_gradient, brier, 1e-5, 0), "Brier gradient near 1");
    check(near(result(Rule::kBrier).coefficients.A, 2 * (R - R2) / std::pow(1 + R, 2), 1e-5, 0), "Brier A near 1");
    const double spherical = -R2 / std::pow(1 + R2, 1.5);
    check(near(result(Rule::kSpherical).coefficients.target_gradient, spherical, 1e-5, 0), "spherical near 1");
  }
}

void test_odd_logits() {
  const auto results = [](const std::vector<float>& logits, int64_t target) {
    std::vector<RowResult> all;
    for (const Rule rule : {Rule::kLog, Rule::kBrier, Rule::kSpherical}) {
      const RuleSettings settings = settings_of(rule, 0, true, static_cast<int64_t>(logits.size()));
      const ClassSums sums = running_sums(logits);
      all.push_back(result_of(settings, sums, logits, target));
      const RowResult twice = result_of(settings, joined(sums, no_classes()), logits, target);
      check(twice.loss == all.back().loss || std::isnan(twice.loss), "no classes add nothing");
    }
    return all;
  };
  for (const std::vector<float>& logits : std::vector<std::vector<float>>{
           {0.0f, kNaN, 1.0f}, {kNaN, 0.0f, 1.0f}, {0.0f, kInfinity, 1.0f}, {-kInfinity, -kInfinity, -kInfinity}}) {
    for (const int64_t target : {0, 1}) {
      for (const RowResult& result : results(logits, target)) check(std::isnan(result.loss), "no number for bad logits");
    }
  }
  for (const RowResult& result : results({-kInfinity, 0.0f, 1.0f}, 1)) {
    check(std::isfinite(result.loss), "a class that cannot be has probability 0");
    check(logit_gradient(result.coefficients, 0.0f, -kInfinity, false) == 0.0f, "and no gradient");
  }
  check(results({-kInfinity, 0.0f}, 0)[0].loss == kInfinity, "an impossible target has an infinite log loss");
  for (const float z : {0.0f, kNaN, kInfinity}) {
    check(logit_gradient(ignored_row().coefficients, 0.1f, z, false) == 0.0f, "an ignored row has no gradient");
  }
}

}  // namespace

int main() {
  test_rules();
  test_near_one();
  test_odd_logits();
  return mlmfast::testing::report("cuda_rule_math_test");
}
