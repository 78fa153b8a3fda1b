// What all functions of the C interface check, and how they fail.
#pragma once

#include <cstdint>

#include "mlmfast/cuda_api.h"
#include "platform.h"

namespace mlmfast::cuda {

// Leaves the message of mlmfast_cuda_last_error; returns 1.
int fail(const char* what);
int fail(cudaError_t status);

constexpr int64_t kMaxRows = int64_t{1} << 37;  // a grid has fewer than 2^31 blocks along its first dimension

// What is wrong with the numbers that every problem has, or nullptr.
const char* array_fault(int64_t num_rows, int64_t num_classes, int64_t hidden_size, int32_t type, int32_t bias_type,
                        const void* weight);
bool is_scratch(const void* scratch, int64_t num_bytes, int64_t needed);

// Of the current device.
cudaError_t count_multiprocessors(int* count);

}  // namespace mlmfast::cuda
