// What the API's checks hand to the head's kernels, and the launch.
#pragma once

#include "mlmfast/cuda_head.h"
#include "platform.h"

namespace mlmfast::cuda {

using HeadProblem = mlmfast_cuda_head_problem;
using HeadOutputs = mlmfast_cuda_head_outputs;

int64_t head_scratch_bytes(const HeadProblem& problem, int num_multiprocessors);
cudaError_t launch_head(const HeadProblem& problem, int num_multiprocessors, const HeadOutputs& outputs, void* scratch,
                        cudaStream_t stream);

}  // namespace mlmfast::cuda
