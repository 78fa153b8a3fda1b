// The names of CUDA that platform.h, the kernels and their test use, on top of emulated_block.h.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "emulated_block.h"

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define MLMFAST_UNROLL(times)

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

using cudaStream_t = void*;
enum cudaError_t { cudaSuccess = 0, cudaErrorMemoryAllocation = 2 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount };
inline const char* cudaGetErrorString(cudaError_t) { return "out of memory"; }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 1, cudaSuccess; }
inline cudaError_t cudaMalloc(void** memory, size_t size) {
  return (*memory = std::malloc(size)) == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
inline cudaError_t cudaFree(void* memory) { return std::free(memory), cudaSuccess; }
inline cudaError_t cudaMemsetAsync(void* memory, int value, size_t size, cudaStream_t) {
  return std::memset(memory, value, size), cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* target, const void* source, size_t size, cudaMemcpyKind) {
  return std::memcpy(target, source, size), cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

namespace mlmfast::cuda {

struct bf16 {
  uint16_t bits;
};
static_assert(sizeof(bf16) == 2);

}  // namespace mlmfast::cuda

inline float __bfloat162float(mlmfast::cuda::bf16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }
inline mlmfast::cuda::bf16 __float2bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value != value) return {static_cast<uint16_t>((bits >> 16) | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};  // nearest, ties to even
}

inline mlmfast::cuda::emulation::ThreadIndex threadIdx;
inline mlmfast::cuda::emulation::BlockIndex blockIdx;
inline void __syncthreads() { mlmfast::cuda::emulation::leave_fiber(); }
inline int atomicAdd(int* sum, int value) { return std::exchange(*sum, *sum + value); }

namespace mlmfast::cuda {

inline unsigned char* block_memory() { return emulation::block.memory; }

inline void require_alignment(const void* memory, size_t alignment) {
  if (reinterpret_cast<uintptr_t>(memory) % alignment != 0) emulation::fail("misaligned access");
}

inline void copy_16_bytes(void* target, const void* source, int size) {
  require_alignment(target, 16);
  require_alignment(source, 16);
  emulation::block.fibers[emulation::block.running].copies.back().push_back({target, source, size});
}
inline void commit_copies() { emulation::block.fibers[emulation::block.running].copies.emplace_back(); }
inline void wait_for_copies() {
  auto& groups = emulation::block.fibers[emulation::block.running].copies;
  while (groups.size() > 2) {
    for (const emulation::Copy& copy : groups.front()) {
      std::memset(copy.target, 0, 16);
      std::memcpy(copy.target, copy.source, copy.size);
    }
    groups.pop_front();
  }
}

template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, int num_threads, int memory_bytes, cudaStream_t,
                   Arguments... arguments) {
  emulation::block.grid = grid;
  emulation::block.kernel = [=] { kernel(arguments...); };
  const unsigned num_blocks = grid.x * grid.y;
  for (unsigned i = 0; i < num_blocks; ++i) {
    const unsigned index = emulation::backwards ? num_blocks - 1 - i : i;
    emulation::block.index = {index % grid.x, index / grid.x};
    emulation::run_block(num_threads, memory_bytes);
  }
  return cudaSuccess;
}

template <bool kTransposed, class OffsetOf>
void load_matrices(uint32_t (&words)[4], const bf16* memory, OffsetOf&& offset_of) {
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) {
    const bf16* values[2];
    for (int e = 0; e < 2; ++e) {
      const int outer = lane / 4, inner = lane % 4 * 2 + e;
      const bf16* row = memory + offset_of(8 * i + (kTransposed ? inner : outer));
      require_alignment(row, 16);
      values[e] = row + (kTransposed ? outer : inner);
    }
    words[i] = values[0]->bits | uint32_t{values[1]->bits} << 16;
  }
}

// Done for the whole warp when its last thread comes, whose threads wait for the sums only at the next barrier.
inline void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulation::MatrixProduct& product = emulation::next_product();
  const int lane = threadIdx.x % 32;
  product.sums[lane] = sums;
  std::copy_n(a, 4, product.a[lane]);
  product.b[lane][0] = b0;
  product.b[lane][1] = b1;
  emulation::finish_products();
}

}  // namespace mlmfast::cuda
