// A linear layer and a scoring rule as one: losses of logits = input weight^T + bias, and the gradients by
// input, weight and bias, with no more than a tile of logits at a time. Both sweep over the classes once, forward
// twice where the rule has a tail. Threads share out the classes; sums over them, and so the last bits of losses
// and of gradients by the input, depend on the number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "mlmfast/isa.h"
#include "mlmfast/matrix.h"
#include "mlmfast/scoring_rules.h"
#include "mlmfast/weights.h"

namespace mlmfast {

struct LinearScoringRule {
  WeightView input;    // [N, D]
  WeightView weight;   // [V, D]
  const float* bias;   // [V] or null
  const int64_t* targets;  // [N] in [0, V), or negative: the row is ignored
  ScoringRule rule;
  Precision precision;
  Isa isa;
  int64_t num_threads = 1;
};

// The classes of one thread.
struct ClassSlice {
  int64_t begin, end;
};
std::vector<ClassSlice> class_slices(const LinearScoringRule& call);

// lse, a, b, 0, u, d, target_gradient of LossAndGradient.
constexpr int64_t kNumCoefficients = 7;

// losses [N], coefficients [N, kNumCoefficients]: 0 for ignored rows, but lse inf.
// Throws std::invalid_argument for shapes that do not fit or a target outside the classes.
void linear_scoring_rule_forward(const LinearScoringRule& call, float* losses, float* coefficients);

// Null is not wanted. As floats, or as bfloat16 where the factor is.
struct LinearGradients {
  void* input = nullptr;   // [N, D]
  void* weight = nullptr;  // [V, D]
  float* bias = nullptr;   // [V]
};

// upstream [N]: the gradient by each row's loss.
void linear_scoring_rule_backward(const LinearScoringRule& call, const float* coefficients, const float* upstream,
                                  const LinearGradients& gradients);

}  // namespace mlmfast
