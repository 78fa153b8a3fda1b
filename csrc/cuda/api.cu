#include <cstdio>

#include "api_checks.h"
#include "tile.h"

namespace mlmfast::cuda {
namespace {

constexpr int64_t kMaxClasses = (int64_t{1} << 31) - 1;

thread_local char last_error[256];

bool is_type(int32_t type) { return type == MLMFAST_CUDA_FLOAT32 || type == MLMFAST_CUDA_BFLOAT16; }

}  // namespace

int fail(const char* what) {
  std::snprintf(last_error, sizeof last_error, "%s", what);
  return 1;
}

int fail(cudaError_t status) {
  std::snprintf(last_error, sizeof last_error, "CUDA: %s", cudaGetErrorString(status));
  return 1;
}

const char* array_fault(int64_t num_rows, int64_t num_classes, int64_t hidden_size, int32_t type, int32_t bias_type,
                        const void* weight) {
  if (num_rows < 0 || num_rows > kMaxRows) return "num_rows: expected 0 to 2^37";
  if (num_classes < 1 || num_classes > kMaxClasses) return "num_classes: expected 1 to 2^31 - 1";
  if (hidden_size < 1 || hidden_size >= kMaxStride) return "hidden_size: expected 1 to 2^23 - 1";
  if (!is_type(type)) return "type: expected MLMFAST_CUDA_FLOAT32 or MLMFAST_CUDA_BFLOAT16";
  if (!is_type(bias_type)) return "bias_type: expected MLMFAST_CUDA_FLOAT32 or MLMFAST_CUDA_BFLOAT16";
  if (weight == nullptr) return "weight: expected an array, got NULL";
  return nullptr;
}

bool is_scratch(const void* scratch, int64_t num_bytes, int64_t needed) {
  return needed == 0 || (scratch != nullptr && num_bytes >= needed && reinterpret_cast<uintptr_t>(scratch) % 16 == 0);
}

cudaError_t count_multiprocessors(int* count) {
  int device = 0;
  const cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  return cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
}

}  // namespace mlmfast::cuda

extern "C" const char* mlmfast_cuda_last_error(void) { return mlmfast::cuda::last_error; }
