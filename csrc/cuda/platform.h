// What the kernels take from CUDA, in one place. An ordinary C++ compiler gets the same names from emulation.h,
// so that kernels and launches can be tested where there is no GPU.
#pragma once

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <cstdint>

#define MLMFAST_PRAGMA(text) _Pragma(#text)
#define MLMFAST_UNROLL(times) MLMFAST_PRAGMA(unroll times)

namespace mlmfast::cuda {

using bf16 = __nv_bfloat16;

// The block's dynamic shared memory, aligned to 128 bytes.
__device__ inline unsigned char* block_memory() {
  extern __shared__ __align__(128) unsigned char memory[];
  return memory;
}

// The first `size` of 16 bytes come from source, the others become 0. Seen by its own thread after wait_for_copies,
// by the block after a barrier as well.
__device__ inline void copy_16_bytes(void* target, const void* source, int size) {
  __pipeline_memcpy_async(target, source, 16, 16 - size);
}
// Ends a group of copies.
__device__ inline void commit_copies() { __pipeline_commit(); }
// Waits for all groups but the last one.
__device__ inline void wait_for_copies() { __pipeline_wait_prior(1); }

// ldmatrix: four matrices of 8 x 8, whose rows start at memory + offset_of(lane), 8 lanes to a matrix. Of each, lane l
// gets the elements (l / 4, 2 (l % 4)) and the one right of it, or with kTransposed those of the transposed matrix.
template <bool kTransposed, class OffsetOf>
__device__ inline void load_matrices(uint32_t (&words)[4], const bf16* memory, OffsetOf&& offset_of) {
  const uint32_t row = static_cast<uint32_t>(__cvta_generic_to_shared(memory + offset_of(threadIdx.x % 32)));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(row)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(row)
                 : "memory");
  }
}

// mma.m16n8k16: sums [16, 8] += a [16, 16] b [16, 8], spread over a warp as the PTX manual has it. With g = lane / 4 and
// t = lane % 4, a holds (g, 2 t), (g + 8, 2 t), (g, 2 t + 8), (g + 8, 2 t + 8) and the elements right of them, b holds
// (2 t, g), (2 t + 8, g) and those below, sums holds (g, 2 t), (g, 2 t + 1), (g + 8, 2 t), (g + 8, 2 t + 1).
__device__ inline void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, int num_threads, int memory_bytes, cudaStream_t stream,
                   Arguments... arguments) {
  // Above 48 KiB a kernel has to be told, on every device it runs on.
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, memory_bytes);
  if (status != cudaSuccess) return status;
  kernel<<<grid, num_threads, memory_bytes, stream>>>(arguments...);
  return cudaGetLastError();
}

}  // namespace mlmfast::cuda

#else
#include "emulation.h"
#endif
