// Problems of the head on the device, what it makes of them, and what they are by definition.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/tests/device_values.h"
#include "mlmfast/cuda_head.h"

namespace mlmfast::testing {

struct HeadCase {
  int64_t N, V, D;
  int32_t type = MLMFAST_CUDA_FLOAT32, bias_type = MLMFAST_CUDA_FLOAT32;
  bool has_bias = true;
  float spread = 1.0f;  // of the logits, about
  std::vector<int64_t> num_targets = {1, 0, 3, 2};  // of the rows, in turn
  int64_t offset = 0;  // of hidden from an aligned address, in elements

  std::string name() const {
    return "N " + std::to_string(N) + ", V " + std::to_string(V) + ", D " + std::to_string(D) + ", type " +
           std::to_string(type) + ", bias " + std::to_string(has_bias ? bias_type : -1) + ", spread " +
           std::to_string(spread) + ": ";
  }
};

struct HeadInputs {
  Values hidden, weight, bias;
  std::vector<int64_t> target_offsets{0};
  std::vector<int32_t> target_ids;
  DeviceArray device_offsets, device_ids;
  mlmfast_cuda_head_problem problem{};

  // [offset + N, D], [V, D], [V] and the targets of a case.
  HeadInputs(const HeadCase& c, const std::vector<float>& hidden_values, const std::vector<float>& weight_values,
             const std::vector<float>& bias_values)
      : hidden(hidden_values, c.type),
        weight(weight_values, c.type),
        bias(bias_values, c.bias_type),
        device_offsets((c.N + 1) * 8),
        device_ids(count_targets(c) * 4) {
    for (int64_t row = 0; row < c.N; ++row) {
      for (int64_t i = 0; i < c.num_targets[row % c.num_targets.size()]; ++i) {
        target_ids.push_back(static_cast<int32_t>(i == 2 ? target_ids.back() : generator() % c.V));  // the third again
      }
      target_offsets.push_back(static_cast<int64_t>(target_ids.size()));
    }
    if (!c.has_bias) std::fill(bias.host.begin(), bias.host.end(), 0.0f);
    hidden.host.erase(hidden.host.begin(), hidden.host.begin() + c.offset);
    device_offsets.write(target_offsets.data());
    device_ids.write(target_ids.data());
    problem.num_rows = c.N;
    problem.num_classes = c.V;
    problem.hidden_size = c.D;
    problem.num_targets = static_cast<int64_t>(target_ids.size());
    problem.hidden = static_cast<unsigned char*>(hidden.device.get()) + c.offset * size_of(c.type);
    problem.weight = weight.device.get();
    problem.bias = c.has_bias ? bias.device.get() : nullptr;
    problem.target_offsets = static_cast<const int64_t*>(device_offsets.get());
    problem.target_ids = static_cast<const int32_t*>(device_ids.get());
    problem.type = c.type;
    problem.bias_type = c.bias_type;
  }
  explicit HeadInputs(const HeadCase& c)
      : HeadInputs(c, normal_values(c.offset + c.N * c.D, c.spread / std::sqrt(static_cast<float>(c.D))),
                   normal_values(c.V * c.D, 1.0f), normal_values(c.V, 1.0f)) {}

 private:
  static int64_t count_targets(const HeadCase& c) {
    int64_t count = 0;
    for (int64_t row = 0; row < c.N; ++row) count += c.num_targets[row % c.num_targets.size()];
    return count;
  }
};

struct HeadResults {
  std::vector<float> log_prob, logit, lse, entropy;
  std::vector<int32_t> rank;
};

// All results, or log_prob alone; the scratch memory is full of `scratch_value` before.
inline HeadResults run_head(const HeadInputs& inputs, bool all = true, float scratch_value = NAN) {
  const mlmfast_cuda_head_problem& problem = inputs.problem;
  const int64_t rows = problem.num_rows * 4, targets = problem.num_targets * 4;
  DeviceArray log_prob(targets), logit(targets), lse(rows), entropy(rows), rank(targets);
  const auto floats = [](const DeviceArray& array) { return static_cast<float*>(array.get()); };
  mlmfast_cuda_head_outputs outputs{floats(log_prob), nullptr, nullptr, nullptr, nullptr};
  if (all) outputs = {floats(log_prob), floats(logit), floats(lse), floats(entropy), static_cast<int32_t*>(rank.get())};
  int64_t num_bytes = 0;
  succeed(mlmfast_cuda_head_scratch(&problem, &num_bytes), "head scratch: ");
  DeviceArray scratch(num_bytes);
  scratch.write(std::vector<float>(num_bytes / 4, scratch_value).data());
  succeed(mlmfast_cuda_head(&problem, &outputs, scratch.get(), num_bytes, nullptr), "head: ");
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return {log_prob.read<float>(), logit.read<float>(), lse.read<float>(), entropy.read<float>(), rank.read<int32_t>()};
}

// A row from the definitions, in extended precision.
struct ReferenceHeadRow {
  std::vector<double> logits;
  double lse = 0, entropy = 0;
  double slack = 0;  // what float32 sums of products may be off, by the size of their terms

  ReferenceHeadRow(const HeadInputs& inputs, int64_t row) {
    using Number = long double;
    const int64_t V = inputs.problem.num_classes, D = inputs.problem.hidden_size;
    for (int64_t k = 0; k < V; ++k) {
      const float *x = &inputs.hidden.host[row * D], *w = &inputs.weight.host[k * D];
      double z = inputs.bias.host[k], magnitude = 0;
      for (int64_t d = 0; d < D; ++d) {
        z += double{x[d]} * w[d];
        magnitude += std::abs(double{x[d]} * w[d]);
      }
      logits.push_back(z);
      slack = std::max(slack, 4e-7 * magnitude);
    }
    const Number max = *std::max_element(logits.begin(), logits.end());
    Number total = 0, entropy_sum = 0;
    for (const double z : logits) total += std::exp(z - max);
    const Number log_total = std::log(total);
    for (const double z : logits) {
      const Number log_p = z - max - log_total;
      if (std::exp(log_p) > 0) entropy_sum -= std::exp(log_p) * log_p;
    }
    lse = static_cast<double>(max + log_total);
    entropy = static_cast<double>(entropy_sum);
  }

  // Classes whose logit is larger by more than `margin`.
  int64_t rank(int32_t target, double margin) const {
    return std::count_if(logits.begin(), logits.end(), [&](double z) { return z > logits[target] + margin; });
  }
};

}  // namespace mlmfast::testing
