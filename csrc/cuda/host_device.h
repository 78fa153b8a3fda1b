// Marks functions that run on the host and on the device.
#pragma once

#ifdef __CUDACC__
#define MLMFAST_HOST_DEVICE __host__ __device__ inline
#else
#define MLMFAST_HOST_DEVICE inline
#endif
