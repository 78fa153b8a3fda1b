// What the API's checks hand to the kernels, and the launches.
#pragma once

#include "mlmfast/cuda_scoring_rules.h"
#include "platform.h"
#include "rule_math.h"

namespace mlmfast::cuda {

using Problem = mlmfast_cuda_rule_problem;

RuleSettings rule_settings(const Problem& problem);

int64_t forward_scratch_bytes(const Problem& problem, int num_multiprocessors);
cudaError_t launch_forward(const Problem& problem, int num_multiprocessors, float* loss, Coefficients* coefficients,
                           void* scratch, cudaStream_t stream);

struct Gradients {
  void *input, *weight, *bias;  // nullptr: not wanted
};

// Scratch for `num_classes` classes at a time, a multiple of kTile.
int64_t backward_scratch_bytes(const Problem& problem, int64_t num_classes);
cudaError_t launch_backward(const Problem& problem, int64_t classes_at_a_time, const float* grad_loss,
                            const Coefficients* coefficients, const Gradients& gradients, void* scratch,
                            cudaStream_t stream);

}  // namespace mlmfast::cuda
