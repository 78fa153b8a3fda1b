// Losses and gradients against the same formulas over stored logits in double.
#include <atomic>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "bf16.h"
#include "check.h"
#include "mlmfast/linear_scoring_rule.h"
#include "parallel.h"
#include "random_values.h"

using namespace mlmfast;
using namespace mlmfast::testing;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Sizes {
  int64_t num_rows, num_columns, num_classes;
};

// A call's arrays; bfloat16 ones hold what the floats are rounded to.
struct Problem {
  Problem(const Sizes& s, DType dtype_, float scale, bool with_bias) : sizes(s), dtype(dtype_) {
    input = random_values(s.num_rows * s.num_columns, 1.0f);
    weight = random_values(s.num_classes * s.num_columns, scale / std::sqrt(static_cast<float>(s.num_columns)));
    if (with_bias) bias = random_values(s.num_classes, 1.0f);
    upstream = random_values(s.num_rows, 1.0f);
    for (int64_t r = 0; r < s.num_rows; ++r) targets.push_back(r % 5 == 3 ? -100 : (r * 7919) % s.num_classes);
    if (dtype == DType::bf16) {
      input_words = round(input);
      weight_words = round(weight);
    }
  }

  static std::vector<uint16_t> round(std::vector<float>& values) {
    std::vector<uint16_t> words;
    for (float& value : values) {
      words.push_back(mlmfast::testing::to_bf16(value));
      value = bf16_to_f32(words.back());
    }
    return words;
  }

  LinearScoringRule call(const ScoringRule& rule, Precision precision, Isa isa) const {
    const bool is_float = dtype == DType::f32;
    const auto view = [&](const std::vector<float>& floats, const std::vector<uint16_t>& words, int64_t rows) {
      const void* data = is_float ? static_cast<const void*>(floats.data()) : words.data();
      return WeightView{static_cast<const std::byte*>(data), dtype, rows, sizes.num_columns};
    };
    return {view(input, input_words, sizes.num_rows),
            view(weight, weight_words, sizes.num_classes),
            bias.empty() ? nullptr : bias.data(),
            targets.data(),
            rule,
            precision,
            isa};
  }

  Sizes sizes;
  DType dtype;
  std::vector<float> input, weight, bias, upstream;
  std::vector<uint16_t> input_words, weight_words;
  std::vector<int64_t> targets;
};

struct Expected {
  std::vector<double> losses, input, weight, bias;
};

// The design's formulas as they stand.
Expected expect(const Problem& p, const ScoringRule& rule) {
  const auto [n, d, v] = p.sizes;
  Expected e{std::vector<double>(n), std::vector<double>(n * d), std::vector<double>(v * d), std::vector<double>(v)};
  const double eps = rule.smoothing, h = eps / static_cast<double>(v);
  std::vector<double> log_p(v), g(v);
  for (int64_t r = 0; r < n; ++r) {
    if (p.targets[r] < 0) continue;
    double max = -INFINITY;
    for (int64_t c = 0; c < v; ++c) {
      double z = p.bias.empty() ? 0.0 : p.bias[c];
      for (int64_t k = 0; k < d; ++k) z += double{p.input[r * d + k]} * p.weight[c * d + k];
      log_p[c] = z;
      max = std::max(max, z);
    }
    double sum = 0, squares = 0, all = 0, tail = 0, num_tail = 0;
    for (double z : log_p) sum += std::exp(z - max);
    for (double& z : log_p) {
      z -= max + std::log(sum);
      squares += std::exp(2 * z);
      all += z;
      if (std::exp(z) >= h || !rule.has_tail()) continue;
      tail += z;
      ++num_tail;
    }
    const int64_t y = p.targets[r];
    const double py = std::exp(log_p[y]), norm = std::sqrt(squares);
    double a = 1, b = 0, u = -h, target = -(1 - eps);
    if (rule.rule == Rule::log) {
      e.losses[r] = -(1 - eps) * log_p[y] - h * all;
    } else if (rule.rule == Rule::brier) {
      e.losses[r] = squares - 2 * (1 - eps) * py - 2 * h;
      a = 2 * ((1 - eps) * py - squares), b = 2, u = 0, target = -2 * (1 - eps) * py;
    } else {
      e.losses[r] = -((1 - eps) * py + h) / norm;
      a = -h / norm, b = ((1 - eps) * py + h) / (norm * squares), u = 0, target = -(1 - eps) * py / norm;
    }
    e.losses[r] -= h * tail;
    a += h * num_tail;
    for (int64_t c = 0; c < v; ++c) {
      const double pc = std::exp(log_p[c]);
      g[c] = p.upstream[r] * (a * pc + b * pc * pc + u + (rule.has_tail() && pc < h ? -h : 0) + (c == y ? target : 0));
      e.bias[c] += g[c];
      for (int64_t k = 0; k < d; ++k) {
        e.input[r * d + k] += g[c] * p.weight[c * d + k];
        e.weight[c * d + k] += g[c] * p.input[r * d + k];
      }
    }
  }
  return e;
}

std::vector<float> floats_of(const std::vector<std::byte>& bytes, DType dtype, int64_t size) {
  std::vector<float> floats(size);
  WeightView{bytes.data(), dtype, size, 1}.read(0, size, floats.data());
  return floats;
}

void check_close(const std::vector<float>& got, const std::vector<double>& want, double tolerance,
                 const std::string& what) {
  double largest = 0, worst = 0;
  for (double value : want) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(got[i] - want[i]);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  check(worst <= tolerance * std::max(largest, 1e-3),
        what + ": off by " + std::to_string(worst) + " of " + std::to_string(largest));
}

void check_problem(const Problem& p, const ScoringRule& rule, Precision precision, Isa isa, double tolerance,
                   int64_t num_threads = 1) {
  const auto [n, d, v] = p.sizes;
  const std::string what = std::string(precision_name(precision)) + " " + isa_name(isa) + " rule " +
                           std::to_string(static_cast<int>(rule.rule)) + " smoothing " + std::to_string(rule.smoothing) +
                           " [" + std::to_string(n) + ", " + std::to_string(d) + ", " + std::to_string(v) + "] ";
  const Expected want = expect(p, rule);
  LinearScoringRule call = p.call(rule, precision, isa);
  call.num_threads = num_threads;
  std::vector<float> losses(n, kNaN), coefficients(n * kNumCoefficients, kNaN), bias(v, kNaN);
  linear_scoring_rule_forward(call, losses.data(), coefficients.data());
  check_close(losses, want.losses, tolerance, what + "losses");
  std::vector<std::byte> input(n * d * 4, std::byte{0xff}), weight(v * d * 4, std::byte{0xff});
  linear_scoring_rule_backward(call, coefficients.data(), p.upstream.data(), {input.data(), weight.data(), bias.data()});
  const double store = p.dtype == DType::bf16 ? tolerance + 1.0 / 256 : tolerance;
  check_close(floats_of(input, p.dtype, n * d), want.input, store, what + "input");
  check_close(floats_of(weight, p.dtype, v * d), want.weight, store, what + "weight");
  check_close(bias, want.bias, tolerance, what + "bias");
}

void test_against_double() {
  const ScoringRule rules[] = {{Rule::log, 0, false},         {Rule::log, 0.1, false},      {Rule::brier, 0, false},
                               {Rule::brier, 0.1, true},      {Rule::spherical, 0.1, false}, {Rule::spherical, 0, false},
                               {Rule::spherical, 0.1, true}};
  const Sizes shapes[] = {{1, 1, 1}, {1, 7, 2}, {3, 64, 251}, {33, 40, 1000}, {130, 17, 33}};
  for (const Isa isa : available_isas()) {
    for (const Sizes& sizes : shapes) {
      for (const ScoringRule& rule : rules) {
        for (const bool with_bias : {true, false}) {
          const Problem p(sizes, DType::f32, 2.0f, with_bias);
          check_problem(p, rule, Precision::float32, isa, 1e-5);
          check_problem(p, rule, Precision::bf16x3, isa, 1e-4);
          check_problem(p, rule, Precision::bf16x4, isa, 1e-4);
          const Problem half(sizes, DType::bf16, 2.0f, with_bias);
          check_problem(half, rule, Precision::bfloat16, isa, 0.01);
        }
      }
    }
  }
}

// More rows than one chunk holds, for which gradients are summed over chunks.
void test_many_rows() {
  for (const Isa isa : available_isas()) {
    const Sizes sizes{3000, 800, 50};
    check_problem(Problem(sizes, DType::f32, 2.0f, true), {Rule::log, 0.1, false}, Precision::bf16x3, isa, 1e-4);
    check_problem(Problem(sizes, DType::bf16, 2.0f, true), {Rule::brier, 0.1, true}, Precision::bfloat16, isa, 0.01);
  }
}

void test_threads() {
  for (const int64_t num_threads : {2, 3, 16}) {
    const Sizes sizes{70, 40, 2000};
    check_problem(Problem(sizes, DType::f32, 2.0f, true), {Rule::spherical, 0.1, true}, Precision::float32,
                  default_isa(), 1e-5, num_threads);
    check_problem(Problem(sizes, DType::bf16, 2.0f, true), {Rule::log, 0.1, false}, Precision::bfloat16,
                  default_isa(), 0.01, num_threads);
  }
}

void test_exceptions_of_threads() {
  std::atomic<int> num_run{0};
  check_throws<std::runtime_error>(
      [&] {
        in_parallel(4, [&](int64_t i) {
          ++num_run;
          if (i >= 2) throw std::runtime_error("of a thread");
        });
      },
      "work that failed in a thread");
  check(num_run == 4, "all work is done although some failed");
}

// One minus the target's probability is 1e-11, and stays in the gradients of the other class.
void test_near_certainty() {
  const double gap = 25.328436;  // log(1e11)
  const std::vector<float> input = {1.0f}, weight = {static_cast<float>(gap), 0.0f}, upstream = {1.0f};
  const std::vector<int64_t> targets = {0};
  const auto view = [](const std::vector<float>& floats, int64_t rows) {
    return WeightView{reinterpret_cast<const std::byte*>(floats.data()), DType::f32, rows, 1};
  };
  for (const Rule rule : {Rule::log, Rule::brier, Rule::spherical}) {
    const LinearScoringRule call{view(input, 1), view(weight, 2), nullptr, targets.data(), {rule, 0, false},
                                 Precision::float32, default_isa()};
    float loss = kNaN, coefficients[kNumCoefficients], bias[2] = {kNaN, kNaN};
    linear_scoring_rule_forward(call, &loss, coefficients);
    linear_scoring_rule_backward(call, coefficients, upstream.data(), {nullptr, nullptr, bias});
    const double q = 1 / (1 + std::exp(double{weight[0]})), p = 1 - q;
    const double want = rule == Rule::log     ? q
                        : rule == Rule::brier ? 2 * p * (q * q + q * q)
                                              : p * q * q / std::pow(p * p + q * q, 1.5);
    check(std::abs(bias[0] + want) < 1e-5 * want, "the target's gradient near certainty");
    if (rule == Rule::log) check(std::abs(loss - q) < 1e-5 * q && std::abs(bias[1] - q) < 1e-5 * q, "the log loss near certainty");
  }
}

void test_all_ignored() {
  Problem p({4, 8, 16}, DType::f32, 1.0f, true);
  p.targets.assign(4, -1);
  check_problem(p, {Rule::log, 0, false}, Precision::float32, default_isa(), 0.0);
}

void test_bad_calls() {
  Problem p({4, 8, 16}, DType::f32, 1.0f, true);
  p.targets[2] = 16;
  float losses[4], coefficients[4 * kNumCoefficients];
  check_throws<std::invalid_argument>(
      [&] { linear_scoring_rule_forward(p.call({}, Precision::float32, default_isa()), losses, coefficients); },
      "a target outside the classes");
  p.targets[2] = 1;
  check_throws<std::invalid_argument>(
      [&] {
        linear_scoring_rule_backward(p.call({}, Precision::int8, default_isa()), coefficients, losses, {});
      },
      "gradients in int8");
}

}  // namespace

int main() {
  test_against_double();
  test_many_rows();
  test_threads();
  test_exceptions_of_threads();
  test_near_certainty();
  test_all_ignored();
  test_bad_calls();
  return report("linear_scoring_rule_test");
}
