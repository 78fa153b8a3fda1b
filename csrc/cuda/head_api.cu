// The head's C interface: checks.
#include "api_checks.h"
#include "head_kernels.h"

namespace {

using namespace mlmfast::cuda;

// What is wrong with a problem's numbers, or nullptr.
const char* fault(const HeadProblem* problem) {
  if (problem == nullptr) return "problem: expected one, got NULL";
  const char* what = array_fault(problem->num_rows, problem->num_classes, problem->hidden_size, problem->type,
                                 problem->bias_type, problem->weight);
  if (what != nullptr) return what;
  const int64_t num_rows = problem->num_rows, num_targets = problem->num_targets;
  if (num_targets < 0 || num_targets > kMaxRows) return "num_targets: expected 0 to 2^37";
  if (num_rows == 0 && num_targets > 0) return "num_targets: expected 0, as there are no rows";
  if (num_rows > 0 && (problem->hidden == nullptr || problem->target_offsets == nullptr)) {
    return "hidden, target_offsets: expected arrays, got NULL";
  }
  if (num_targets > 0 && problem->target_ids == nullptr) return "target_ids: expected an array, got NULL";
  return nullptr;
}

}  // namespace

extern "C" {

int32_t mlmfast_cuda_head_version(void) { return MLMFAST_CUDA_HEAD_VERSION; }

int mlmfast_cuda_head_scratch(const mlmfast_cuda_head_problem* problem, int64_t* num_bytes) {
  if (const char* what = fault(problem)) return fail(what);
  if (num_bytes == nullptr) return fail("num_bytes: expected a place for it, got NULL");
  int num_multiprocessors = 0;
  const cudaError_t status = count_multiprocessors(&num_multiprocessors);
  if (status != cudaSuccess) return fail(status);
  *num_bytes = head_scratch_bytes(*problem, num_multiprocessors);
  return 0;
}

int mlmfast_cuda_head(const mlmfast_cuda_head_problem* problem, const mlmfast_cuda_head_outputs* outputs, void* scratch,
                      int64_t scratch_bytes, void* stream) {
  if (const char* what = fault(problem)) return fail(what);
  if (outputs == nullptr) return fail("outputs: expected some, got NULL");
  if (problem->num_targets > 0 && outputs->log_prob == nullptr) return fail("log_prob: expected an array, got NULL");
  int num_multiprocessors = 0;
  cudaError_t status = count_multiprocessors(&num_multiprocessors);
  if (status != cudaSuccess) return fail(status);
  if (!is_scratch(scratch, scratch_bytes, head_scratch_bytes(*problem, num_multiprocessors))) {
    return fail("scratch: expected as many bytes as mlmfast_cuda_head_scratch says, at a multiple of 16");
  }
  status = launch_head(*problem, num_multiprocessors, *outputs, scratch, static_cast<cudaStream_t>(stream));
  return status == cudaSuccess ? 0 : fail(status);
}

}  // extern "C"
