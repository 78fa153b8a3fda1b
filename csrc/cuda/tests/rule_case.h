// Random problems on the device for the tests of the CUDA kernels, and what the kernels make of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/rule_math.h"
#include "cuda/tests/device_values.h"
#include "mlmfast/cuda_scoring_rules.h"

namespace mlmfast::testing {

using cuda::Rule;

constexpr int64_t kIgnore = -100;
constexpr int kNumColumns = 7;  // of the coefficients

struct Case {
  int64_t N, V, D;
  int32_t type = MLMFAST_CUDA_FLOAT32, bias_type = MLMFAST_CUDA_FLOAT32;
  bool has_bias = true;
  Rule rule = Rule::kLog;
  double smoothing = 0.0;
  bool masked_log = true;
  float spread = 1.0f;         // of the logits, about
  bool all_ignored = false;
  int64_t scratch_limit = 0;   // of the backward pass
  int64_t offset = 0;          // of the input from an aligned address, in elements

  std::string name() const {
    return "N " + std::to_string(N) + ", V " + std::to_string(V) + ", D " + std::to_string(D) + ", type " +
           std::to_string(type) + ", rule " + std::to_string(static_cast<int>(rule)) + ", smoothing " +
           std::to_string(smoothing) + ", spread " + std::to_string(spread) + ": ";
  }
};

struct Outputs {
  std::vector<float> loss, coefficients, grad_input, grad_weight, grad_bias;
};

// The problem of a case and its inputs.
struct Inputs {
  Values input, weight, bias;
  std::vector<int64_t> target;
  std::vector<float> grad_loss;
  DeviceArray device_target, device_grad_loss;
  mlmfast_cuda_rule_problem problem{};

  explicit Inputs(const Case& c)
      : input(normal_values(c.offset + c.N * c.D, c.spread / std::sqrt(static_cast<float>(c.D))), c.type),
        weight(normal_values(c.V * c.D, 1.0f), c.type),
        bias(normal_values(c.V, 1.0f), c.bias_type),
        grad_loss(normal_values(c.N, 1.0f)),
        device_target(c.N * 8),
        device_grad_loss(c.N * 4) {
    for (int64_t row = 0; row < c.N; ++row) {
      target.push_back(c.all_ignored || row % 5 == 3 ? kIgnore : static_cast<int64_t>(generator() % c.V));
    }
    if (!c.has_bias) std::fill(bias.host.begin(), bias.host.end(), 0.0f);
    input.host.erase(input.host.begin(), input.host.begin() + c.offset);
    device_target.write(target.data());
    device_grad_loss.write(grad_loss.data());
    problem.num_rows = c.N;
    problem.num_classes = c.V;
    problem.hidden_size = c.D;
    problem.input = static_cast<unsigned char*>(input.device.get()) + c.offset * size_of(c.type);
    problem.weight = weight.device.get();
    problem.bias = c.has_bias ? bias.device.get() : nullptr;
    problem.target = static_cast<const int64_t*>(device_target.get());
    problem.ignore_index = kIgnore;
    problem.type = c.type;
    problem.bias_type = c.bias_type;
    problem.rule = static_cast<int32_t>(c.rule);
    problem.masked_log = c.masked_log;
    problem.smoothing = c.smoothing;
  }
};

inline Outputs run(const Case& c, const Inputs& inputs) {
  const mlmfast_cuda_rule_problem* problem = &inputs.problem;
  DeviceArray loss(c.N * 4), coefficients(c.N * 4 * kNumColumns);
  DeviceArray grad_input(c.N * c.D * size_of(c.type)), grad_weight(c.V * c.D * size_of(c.type));
  DeviceArray grad_bias(c.V * size_of(c.bias_type));
  int64_t forward_bytes = 0, backward_bytes = 0;
  succeed(mlmfast_cuda_rule_forward_scratch(problem, &forward_bytes), c.name());
  succeed(mlmfast_cuda_rule_backward_scratch(problem, c.scratch_limit, &backward_bytes), c.name());
  const DeviceArray forward_scratch(forward_bytes), backward_scratch(backward_bytes);
  succeed(mlmfast_cuda_rule_forward(problem, static_cast<float*>(loss.get()), static_cast<float*>(coefficients.get()),
                                    forward_scratch.get(), forward_bytes, nullptr),
          c.name());
  succeed(mlmfast_cuda_rule_backward(problem, static_cast<const float*>(inputs.device_grad_loss.get()),
                                     static_cast<const float*>(coefficients.get()), grad_input.get(),
                                     grad_weight.get(), c.has_bias ? grad_bias.get() : nullptr, backward_scratch.get(),
                                     backward_bytes, nullptr),
          c.name());
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return {loss.read<float>(), coefficients.read<float>(), read_as_float(grad_input, c.type),
          read_as_float(grad_weight, c.type), read_as_float(grad_bias, c.bias_type)};
}

}  // namespace mlmfast::testing
