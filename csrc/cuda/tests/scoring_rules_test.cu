// The CUDA kernels through their C interface against the definitions in extended precision. Runs on a GPU, and in
// the emulation with smaller problems.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/tests/rule_case.h"
#include "cuda/tests/rule_reference.h"

namespace {

using namespace mlmfast::testing;

// A sum of the reference; the magnitudes of its terms, which bound the rounding of the kernels' sums; and what the
// terms themselves may be off.
struct Sum {
  double value = 0, magnitude = 0, slack = 0;
  void add(double term, double term_slack) {
    value += term;
    magnitude += std::abs(term);
    slack += term_slack;
  }
};

void check_sums(const std::vector<float>& values, const std::vector<Sum>& expected, double tolerance,
                const std::string& what) {
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double bound = tolerance * expected[i].magnitude + expected[i].slack + 1e-7;
    const double error = std::abs(values[i] - expected[i].value);
    worst = std::max(worst, std::isnan(values[i]) ? INFINITY : error / bound);
  }
  check(worst <= 1.0, what + ": " + std::to_string(worst) + " times the tolerance");
}

void test_case(const Case& c) {
  const Inputs inputs(c);
  const Outputs outputs = run(c, inputs);
  // bfloat16 rounds every logit's gradient before it is multiplied, and the result.
  const double loss_tolerance = 2e-5, gradient_tolerance = c.type == MLMFAST_CUDA_BFLOAT16 ? 8e-3 : 4e-5;
  const double bias_tolerance = c.bias_type == MLMFAST_CUDA_BFLOAT16 ? 8e-3 : 4e-5;
  std::vector<Sum> grad_input(c.N * c.D), grad_weight(c.V * c.D), grad_bias(c.V);
  std::vector<double> logits(c.V);
  for (int64_t row = 0; row < c.N; ++row) {
    if (inputs.target[row] == kIgnore) {
      check(outputs.loss[row] == 0.0f, c.name() + "an ignored row's loss is 0");
      for (int i = 0; i < kNumColumns; ++i) {
        const float coefficient = outputs.coefficients[row * kNumColumns + i];
        check(coefficient == (i == 0 ? INFINITY : 0.0f), c.name() + "an ignored row's coefficients");
      }
      continue;
    }
    for (int64_t k = 0; k < c.V; ++k) {
      double z = inputs.bias.host[k];
      const float *x = &inputs.input.host[row * c.D], *w = &inputs.weight.host[k * c.D];
      for (int64_t d = 0; d < c.D; ++d) z += double{x[d]} * w[d];
      logits[k] = z;
    }
    const ReferenceRow expected = reference_row(c.rule, c.smoothing, c.masked_log, logits, inputs.target[row]);
    const double error = std::abs(outputs.loss[row] - expected.loss);
    const double loss_bound = loss_tolerance * (1 + std::abs(expected.loss)) + expected.loss_slack;
    check(error <= loss_bound, c.name() + "loss of row " + std::to_string(row));
    const double lse_error = std::abs(outputs.coefficients[row * kNumColumns] - expected.lse);
    check(lse_error <= loss_tolerance * (1 + std::abs(expected.lse)), c.name() + "lse");
    for (int64_t k = 0; k < c.V; ++k) {
      const double g = expected.logit_gradients[k] * inputs.grad_loss[row];
      // A float32 lse rounds p = exp(z - lse), and a gradient may be a small difference of such terms.
      const double p_slack =
          (5e-7 * (1 + std::abs(expected.lse)) + expected.gradient_slack) * expected.probabilities[k];
      const double slack = (p_slack + (expected.at_step[k] ? expected.step : 0)) * std::abs(inputs.grad_loss[row]);
      grad_bias[k].add(g, slack);
      for (int64_t d = 0; d < c.D; ++d) {
        const double w = inputs.weight.host[k * c.D + d], x = inputs.input.host[row * c.D + d];
        grad_input[row * c.D + d].add(g * w, slack * std::abs(w));
        grad_weight[k * c.D + d].add(g * x, slack * std::abs(x));
      }
    }
  }
  check_sums(outputs.grad_input, grad_input, gradient_tolerance, c.name() + "grad_input");
  check_sums(outputs.grad_weight, grad_weight, gradient_tolerance, c.name() + "grad_weight");
  if (c.has_bias) check_sums(outputs.grad_bias, grad_bias, bias_tolerance, c.name() + "grad_bias");

  const Outputs again = run_backwards([&] { return run(c, inputs); });
  check(same_bits(outputs.loss, again.loss) && same_bits(outputs.coefficients, again.coefficients) &&
            same_bits(outputs.grad_input, again.grad_input) && same_bits(outputs.grad_weight, again.grad_weight) &&
            same_bits(outputs.grad_bias, again.grad_bias),
        c.name() + "the same bits again");
}

void test_rules_and_types() {
  for (const Rule rule : {Rule::kLog, Rule::kBrier, Rule::kSpherical}) {
    for (const int32_t type : {MLMFAST_CUDA_FLOAT32, MLMFAST_CUDA_BFLOAT16}) {
      Case c{.N = 5, .V = 251, .D = 64, .type = type, .rule = rule};
      test_case(c);
      c.smoothing = 0.1;
      c.spread = 3.0f;
      test_case(c);
      c.masked_log = false;
      c.bias_type = type;
      test_case(c);
    }
  }
}

void test_shapes() {
  for (const int32_t type : {MLMFAST_CUDA_FLOAT32, MLMFAST_CUDA_BFLOAT16}) {
    for (const int64_t V : {1, 2, 129}) {
      test_case({.N = 1, .V = V, .D = 7, .type = type, .rule = Rule::kBrier, .smoothing = 0.2});
    }
    test_case({.N = 1, .V = 128, .D = 1, .type = type, .has_bias = false});
    // Several tiles of rows, classes and features; classes one tile at a time, then all at once.
    const Case large{.N = 130, .V = 300, .D = 136, .type = type, .rule = Rule::kSpherical, .smoothing = 0.1,
                     .spread = 2.0f};
    test_case(large);
    Case at_once = large;
    at_once.scratch_limit = int64_t{1} << 40;
    test_case(at_once);
    // Several tiles of classes for every block.
    test_case({.N = 3, .V = 1200, .D = 8, .type = type, .rule = Rule::kBrier, .smoothing = 0.1});
    // Rows of odd length, and rows that would be aligned but for where they start.
    test_case({.N = 3, .V = 140, .D = 71, .type = type, .rule = Rule::kBrier});
    test_case({.N = 3, .V = 140, .D = 64, .type = type, .offset = 1});
    test_case({.N = 5, .V = 20, .D = 16, .type = type, .smoothing = 0.1, .all_ignored = true});
    test_case({.N = 0, .V = 20, .D = 16, .type = type});
  }
}

void test_vocabularies() {
  for (const int32_t type : {MLMFAST_CUDA_FLOAT32, MLMFAST_CUDA_BFLOAT16}) {
    for (const Rule rule : {Rule::kLog, Rule::kBrier, Rule::kSpherical}) {
      test_case({.N = 150, .V = 30522, .D = 64, .type = type, .rule = rule, .smoothing = 0.1, .scratch_limit = 1 << 24});
    }
    test_case({.N = 3, .V = 30522, .D = 1000, .type = type, .rule = Rule::kSpherical, .spread = 4.0f});
    test_case({.N = 3, .V = 128256, .D = 384, .type = type, .rule = Rule::kBrier, .smoothing = 0.1, .spread = 4.0f});
    test_case({.N = 3, .V = 250002, .D = 64, .type = type, .spread = 8.0f, .scratch_limit = int64_t{1} << 26});
  }
}

// A weight of more than 2^31 elements, all 0 but the last class's, whose logit is 4.
void test_large_offsets() {
  const int64_t V = 70000, D = 32768, row_bytes = D * size_of(MLMFAST_CUDA_BFLOAT16);
  const float x = 1.0f / 32, w = 1.0f / 256;
  const Values input(std::vector<float>(D, x), MLMFAST_CUDA_BFLOAT16);
  const Values last_class(std::vector<float>(D, w), MLMFAST_CUDA_BFLOAT16);
  const std::vector<int64_t> target{V - 1};
  const std::vector<float> grad_loss{1.0f};
  DeviceArray device_target(8), device_grad_loss(4), loss(4), coefficients(4 * kNumColumns), grad_input(row_bytes);
  device_target.write(target.data());
  device_grad_loss.write(grad_loss.data());
  void *weight = nullptr, *grad_weight = nullptr;
  require(cudaMalloc(&weight, V * row_bytes), "cudaMalloc");
  require(cudaMalloc(&grad_weight, V * row_bytes), "cudaMalloc");
  require(cudaMemsetAsync(weight, 0, V * row_bytes, nullptr), "cudaMemsetAsync");
  const auto row_of = [&](void* array, int64_t k) { return static_cast<unsigned char*>(array) + k * row_bytes; };
  require(cudaMemcpy(row_of(weight, V - 1), last_class.device.get(), row_bytes, cudaMemcpyDeviceToDevice), "cudaMemcpy");

  const mlmfast_cuda_rule_problem problem{.num_rows = 1, .num_classes = V, .hidden_size = D,
                                          .input = input.device.get(), .weight = weight, .bias = nullptr,
                                          .target = static_cast<const int64_t*>(device_target.get()),
                                          .ignore_index = kIgnore, .type = MLMFAST_CUDA_BFLOAT16,
                                          .bias_type = MLMFAST_CUDA_BFLOAT16, .rule = MLMFAST_CUDA_RULE_LOG,
                                          .masked_log = 0, .smoothing = 0.0};
  int64_t forward_bytes = 0, backward_bytes = 0;
  succeed(mlmfast_cuda_rule_forward_scratch(&problem, &forward_bytes), "large offsets: ");
  succeed(mlmfast_cuda_rule_backward_scratch(&problem, 0, &backward_bytes), "large offsets: ");
  const DeviceArray forward_scratch(forward_bytes), backward_scratch(backward_bytes);
  succeed(mlmfast_cuda_rule_forward(&problem, static_cast<float*>(loss.get()), static_cast<float*>(coefficients.get()),
                                    forward_scratch.get(), forward_bytes, nullptr),
          "large offsets: ");
  succeed(mlmfast_cuda_rule_backward(&problem, static_cast<const float*>(device_grad_loss.get()),
                                     static_cast<const float*>(coefficients.get()), grad_input.get(), grad_weight,
                                     nullptr, backward_scratch.get(), backward_bytes, nullptr),
          "large offsets: ");
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const double total = (V - 1) + std::exp(4.0), p = std::exp(4.0) / total;
  const auto near = [](double value, double expected) { return std::abs(value - expected) <= 8e-3 * std::abs(expected); };
  check(near(loss.read<float>()[0], -std::log(p)), "large offsets: loss");
  const auto check_row = [&](const void* row, double expected, const char* what) {
    std::vector<bf16> values(D);
    require(cudaMemcpy(values.data(), row, row_bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    check(std::all_of(values.begin(), values.end(), [&](bf16 v) { return near(__bfloat162float(v), expected); }), what);
  };
  check_row(grad_input.get(), (p - 1) * w, "large offsets: grad_input");
  check_row(row_of(grad_weight, V - 1), (p - 1) * x, "large offsets: the last class's gradient");
  check_row(row_of(grad_weight, V - 2), x / total, "large offsets: another class's gradient");
  require(cudaFree(weight), "cudaFree");
  require(cudaFree(grad_weight), "cudaFree");
}

void test_bad_rows() {
  for (const int32_t type : {MLMFAST_CUDA_FLOAT32, MLMFAST_CUDA_BFLOAT16}) {
    const Case c{.N = 9, .V = 200, .D = 40, .type = type, .rule = Rule::kBrier, .smoothing = 0.1};
    Inputs inputs(c);
    std::vector<float> values = inputs.input.host;
    values[1 * c.D + 5] = NAN;   // row 1
    values[8 * c.D + 5] = NAN;   // row 8, ignored
    inputs.target[8] = kIgnore;
    inputs.target[2] = c.V;      // rows 2 and 4: no class
    inputs.target[4] = -1;
    inputs.device_target.write(inputs.target.data());
    const Values bad_input(values, type);
    inputs.problem.input = bad_input.device.get();
    const Outputs outputs = run(c, inputs);
    for (int64_t row = 0; row < c.N; ++row) {
      const bool bad = row == 1 || row == 2 || row == 4;
      check(std::isnan(outputs.loss[row]) == bad, "row " + std::to_string(row) + " beside bad ones");
      const bool any_nan = std::isnan(outputs.grad_input[row * c.D]);
      check(any_nan == bad, "gradient of row " + std::to_string(row) + " beside bad ones");
    }
  }
}

void test_misuse() {
  const Case c{.N = 2, .V = 10, .D = 8};
  const Inputs inputs(c);
  DeviceArray loss(8), coefficients(4 * 2 * kNumColumns);
  int64_t num_bytes = 0;
  succeed(mlmfast_cuda_rule_forward_scratch(&inputs.problem, &num_bytes), "scratch");
  const auto forward = [&](const mlmfast_cuda_rule_problem* problem, int64_t scratch_bytes) {
    const DeviceArray scratch(num_bytes);
    return mlmfast_cuda_rule_forward(problem, static_cast<float*>(loss.get()), static_cast<float*>(coefficients.get()),
                                     scratch.get(), scratch_bytes, nullptr);
  };
  const auto refuses = [&](auto&& spoil, const char* word) {
    mlmfast_cuda_rule_problem problem = inputs.problem;
    spoil(problem);
    check(forward(&problem, num_bytes) != 0, std::string("no error: ") + word);
    check(std::strstr(mlmfast_cuda_last_error(), word) != nullptr, mlmfast_cuda_last_error());
  };
  refuses([](auto& p) { p.num_rows = -1; }, "num_rows");
  refuses([](auto& p) { p.num_classes = 0; }, "num_classes");
  refuses([](auto& p) { p.hidden_size = 0; }, "hidden_size");
  refuses([](auto& p) { p.type = 5; }, "type");
  refuses([](auto& p) { p.bias_type = -1; }, "bias_type");
  refuses([](auto& p) { p.rule = 3; }, "rule");
  refuses([](auto& p) { p.smoothing = 1.0; }, "smoothing");
  refuses([](auto& p) { p.smoothing = NAN; }, "smoothing");
  refuses([](auto& p) { p.weight = nullptr; }, "weight");
  refuses([](auto& p) { p.target = nullptr; }, "target");
  check(forward(nullptr, num_bytes) != 0, "NULL problem");
  check(forward(&inputs.problem, num_bytes - 1) != 0, "too little scratch");
  check(std::strstr(mlmfast_cuda_last_error(), "scratch") != nullptr, mlmfast_cuda_last_error());
  check(forward(&inputs.problem, num_bytes) == 0, "and the right one works");
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  check(mlmfast_cuda_rule_version() == MLMFAST_CUDA_RULE_VERSION, "version");
}

}  // namespace

int main() {
  test_rules_and_types();
  test_shapes();
  if (kOnGpu) {
    test_vocabularies();
    test_large_offsets();
  }
  test_bad_rows();
  test_misuse();
  return mlmfast::testing::report("scoring_rules_test");
}
