// The C interface: checks, and the room for scratch turned into a number of classes.
#include <algorithm>

#include "api_checks.h"
#include "rule_kernels.h"
#include "scratch.h"
#include "tile.h"

namespace {

using namespace mlmfast::cuda;

constexpr int64_t kMaxClassesAtATime = kMaxStride - kTile;  // a grid's second dimension is below 2^16 blocks
static_assert(kMaxStride / kTile <= 1 << 16);

// What is wrong with a problem's numbers, or nullptr.
const char* fault(const mlmfast_cuda_rule_problem* problem) {
  if (problem == nullptr) return "problem: expected one, got NULL";
  const char* what = array_fault(problem->num_rows, problem->num_classes, problem->hidden_size, problem->type,
                                 problem->bias_type, problem->weight);
  if (what != nullptr) return what;
  if (problem->rule < MLMFAST_CUDA_RULE_LOG || problem->rule > MLMFAST_CUDA_RULE_SPHERICAL) {
    return "rule: expected MLMFAST_CUDA_RULE_LOG, _BRIER or _SPHERICAL";
  }
  if (!(problem->smoothing >= 0.0 && problem->smoothing < 1.0)) return "smoothing: expected 0 up to, not including, 1";
  if (problem->num_rows > 0 && (problem->input == nullptr || problem->target == nullptr)) {
    return "input, target: expected arrays, got NULL";
  }
  return nullptr;
}

// The most classes at a time whose scratch fits, but at least one tile of them.
int64_t classes_that_fit(const mlmfast_cuda_rule_problem& problem, int64_t num_bytes) {
  const int64_t all = std::min(round_up(problem.num_classes, kTile), kMaxClassesAtATime);
  const int64_t one_tile = backward_scratch_bytes(problem, kTile);
  const int64_t bytes_per_tile = backward_scratch_bytes(problem, 2 * kTile) - one_tile;
  if (bytes_per_tile == 0 || num_bytes < one_tile) return bytes_per_tile == 0 ? all : int64_t{kTile};
  return std::min(all, (1 + (num_bytes - one_tile) / bytes_per_tile) * kTile);
}

}  // namespace

extern "C" {

int32_t mlmfast_cuda_rule_version(void) { return MLMFAST_CUDA_RULE_VERSION; }

int mlmfast_cuda_rule_forward_scratch(const mlmfast_cuda_rule_problem* problem, int64_t* num_bytes) {
  if (const char* what = fault(problem)) return fail(what);
  if (num_bytes == nullptr) return fail("num_bytes: expected a place for it, got NULL");
  int num_multiprocessors = 0;
  const cudaError_t status = count_multiprocessors(&num_multiprocessors);
  if (status != cudaSuccess) return fail(status);
  *num_bytes = forward_scratch_bytes(*problem, num_multiprocessors);
  return 0;
}

int mlmfast_cuda_rule_forward(const mlmfast_cuda_rule_problem* problem, float* loss, float* coefficients, void* scratch,
                              int64_t scratch_bytes, void* stream) {
  if (const char* what = fault(problem)) return fail(what);
  if (problem->num_rows > 0 && (loss == nullptr || coefficients == nullptr)) {
    return fail("loss, coefficients: expected arrays, got NULL");
  }
  int num_multiprocessors = 0;
  cudaError_t status = count_multiprocessors(&num_multiprocessors);
  if (status != cudaSuccess) return fail(status);
  if (!is_scratch(scratch, scratch_bytes, forward_scratch_bytes(*problem, num_multiprocessors))) {
    return fail("scratch: expected as many bytes as mlmfast_cuda_rule_forward_scratch says, at a multiple of 16");
  }
  status = launch_forward(*problem, num_multiprocessors, loss, reinterpret_cast<Coefficients*>(coefficients), scratch,
                          static_cast<cudaStream_t>(stream));
  return status == cudaSuccess ? 0 : fail(status);
}

int mlmfast_cuda_rule_backward_scratch(const mlmfast_cuda_rule_problem* problem, int64_t limit_bytes,
                                       int64_t* num_bytes) {
  if (const char* what = fault(problem)) return fail(what);
  if (num_bytes == nullptr) return fail("num_bytes: expected a place for it, got NULL");
  *num_bytes = backward_scratch_bytes(*problem, classes_that_fit(*problem, limit_bytes));
  return 0;
}

int mlmfast_cuda_rule_backward(const mlmfast_cuda_rule_problem* problem, const float* grad_loss,
                               const float* coefficients, void* grad_input, void* grad_weight, void* grad_bias,
                               void* scratch, int64_t scratch_bytes, void* stream) {
  if (const char* what = fault(problem)) return fail(what);
  if (problem->num_rows > 0 && (grad_loss == nullptr || coefficients == nullptr)) {
    return fail("grad_loss, coefficients: expected arrays, got NULL");
  }
  if (!is_scratch(scratch, scratch_bytes, backward_scratch_bytes(*problem, kTile))) {
    return fail("scratch: expected as many bytes as mlmfast_cuda_rule_backward_scratch says, at a multiple of 16");
  }
  const cudaError_t status =
      launch_backward(*problem, classes_that_fit(*problem, scratch_bytes), grad_loss,
                      reinterpret_cast<const Coefficients*>(coefficients), {grad_input, grad_weight, grad_bias}, scratch,
                      static_cast<cudaStream_t>(stream));
  return status == cudaSuccess ? 0 : fail(status);
}

}  // extern "C"

namespace mlmfast::cuda {

RuleSettings rule_settings(const Problem& problem) {
  const Rule rule = static_cast<Rule>(problem.rule);
  return {rule, static_cast<float>(problem.smoothing), static_cast<float>(1.0 - problem.smoothing),
          static_cast<float>(problem.smoothing / static_cast<double>(problem.num_classes)),
          problem.masked_log != 0 && problem.smoothing > 0.0 && rule != Rule::kLog};
}

}  // namespace mlmfast::cuda
