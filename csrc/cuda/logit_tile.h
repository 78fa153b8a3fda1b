// A tile of logits, row by row and class by class, in a block's memory.
#pragma once

#include "mlmfast/cuda_api.h"
#include "platform.h"
#include "tile.h"

namespace mlmfast::cuda {

struct BiasVector {
  const void* data;  // or nullptr
  bool is_bf16;
};

inline BiasVector bias_vector(const void* data, int32_t type) { return {data, type == MLMFAST_CUDA_BFLOAT16}; }

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(bf16 value) { return __bfloat162float(value); }
__device__ inline void assign(float& target, float value) { target = value; }
__device__ inline void assign(bf16& target, float value) { target = __float2bfloat16(value); }

// What a block that makes logits needs: a tile, and its bias behind it.
constexpr int kLogitMemoryBytes = kTileBytes + kTile * int{sizeof(float)};

// The logits of kTile rows and classes without their bias, and the bias beside them: float [kTile, kOutputStride] and
// [kTile], 0 beyond the last row and class.
struct LogitTile {
  float* products;
  const float* bias;
};

template <class T>
__device__ LogitTile logit_tile(const Matrix<T>& input, int64_t row_begin, const Matrix<T>& weight,
                                int64_t class_begin, BiasVector bias) {
  float* tile_bias = reinterpret_cast<float*>(block_memory() + kTileBytes);
  if (threadIdx.x < kTile) {
    const int64_t k = class_begin + threadIdx.x;
    float value = 0.0f;
    if (bias.data != nullptr && k < weight.rows) {
      value = bias.is_bf16 ? to_float(static_cast<const bf16*>(bias.data)[k]) : static_cast<const float*>(bias.data)[k];
    }
    tile_bias[threadIdx.x] = value;
  }
  return {tile_product<T, Layout::kDepthInner, Layout::kDepthInner>(input, row_begin, weight, class_begin), tile_bias};
}

// A row of a tile belongs to two threads, which take its classes four by four in turn.
__device__ inline int thread_row() { return threadIdx.x / 2; }
__device__ inline int thread_half() { return threadIdx.x % 2; }

// Calls visit(column, logit) for the columns that a half of a row has, up to num_columns.
template <class Visit>
__device__ void visit_columns(const LogitTile& tile, int row, int half, int num_columns, Visit&& visit) {
  const float* products = tile.products + row * kOutputStride;
  for (int column = 4 * half; column < num_columns; column += 8) {
    const float4 z = *reinterpret_cast<const float4*>(products + column);
    const float4 b = *reinterpret_cast<const float4*>(tile.bias + column);
    visit(column, z.x + b.x);
    if (column + 1 < num_columns) visit(column + 1, z.y + b.y);
    if (column + 2 < num_columns) visit(column + 2, z.z + b.z);
    if (column + 3 < num_columns) visit(column + 3, z.w + b.w);
  }
}

// Of the calling thread.
template <class Visit>
__device__ void visit_columns(const LogitTile& tile, int num_columns, Visit&& visit) {
  visit_columns(tile, thread_row(), thread_half(), num_columns, visit);
}

}  // namespace mlmfast::cuda
