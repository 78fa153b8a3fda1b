// A product of 128 x 128 outputs by one block of 256 threads: float32 by fused multiply-adds, bfloat16 on the matrix
// units, both summed in float32.
#pragma once

#include <cmath>
#include <cstdint>

#include "platform.h"

namespace mlmfast::cuda {

constexpr int kTile = 128;
constexpr int kThreads = 256;
constexpr int kStageDepthBytes = 128;  // of the summed dimension, per stage
// Row lengths in shared memory, longer than the rows, so that the rows of one access lie in different banks.
constexpr int kPaddingBytes = 16;
constexpr int kOutputStride = kTile + 8;

template <class T>
constexpr int kDepth = kStageDepthBytes / int{sizeof(T)};

// How an operand lies in memory: [outer, depth] or [depth, outer], the last one contiguous.
enum class Layout { kDepthInner, kDepthOuter };

template <class T, Layout kLayout>
struct StageShape {
  static constexpr int kRows = kLayout == Layout::kDepthInner ? kTile : kDepth<T>;
  static constexpr int kColumns = kLayout == Layout::kDepthInner ? kDepth<T> : kTile;
  static constexpr int kStride = kColumns + kPaddingBytes / int{sizeof(T)};
  static constexpr int kBytes = kRows * kStride * int{sizeof(T)};
};

// Room for two stages of two operands, or for the outputs, whichever is more.
constexpr int kStageBytes = kTile * (kStageDepthBytes + kPaddingBytes);
constexpr int kTileBytes = kTile * kOutputStride * int{sizeof(float)} > 4 * kStageBytes
                               ? kTile * kOutputStride * int{sizeof(float)}
                               : 4 * kStageBytes;
static_assert(StageShape<float, Layout::kDepthOuter>::kBytes <= kStageBytes);
static_assert(StageShape<bf16, Layout::kDepthOuter>::kBytes <= kStageBytes);

// The longest row of a matrix, for which offsets within a tile fit 32 bits.
constexpr int64_t kMaxStride = int64_t{1} << 23;

// [rows, columns] with `stride` elements from row to row. What lies beyond reads as 0.
template <class T>
struct Matrix {
  const T* data;
  int64_t rows, columns, stride;
  bool aligned;  // every row starts at a multiple of 16 bytes
};

template <class T>
Matrix<T> matrix(const T* data, int64_t rows, int64_t columns, int64_t stride) {
  const bool aligned = reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride * int64_t{sizeof(T)} % 16 == 0;
  return {data, rows, columns, stride, aligned};
}

__device__ inline int clipped(int64_t size, int limit) { return size < limit ? static_cast<int>(size) : limit; }

// Starts to copy the part of `source` from (row, column), which is in it, on into shared memory.
template <class T, Layout kLayout>
__device__ void load_stage(T* stage, const Matrix<T>& source, int64_t row_begin, int64_t column_begin) {
  using Shape = StageShape<T, kLayout>;
  constexpr int kPiece = 16 / sizeof(T);
  constexpr int kPiecesPerRow = Shape::kColumns / kPiece;
  const int rows_left = clipped(source.rows - row_begin, Shape::kRows);
  const int columns_left = clipped(source.columns - column_begin, Shape::kColumns);
  const T* begin = source.data + row_begin * source.stride + column_begin;
  const int stride = static_cast<int>(source.stride);  // kTile * stride < 2^31: kMaxStride
  for (int piece = threadIdx.x; piece < Shape::kRows * kPiecesPerRow; piece += kThreads) {
    const int row = piece / kPiecesPerRow, column = piece % kPiecesPerRow * kPiece;
    const int size = row < rows_left && column < columns_left ? clipped(columns_left - column, kPiece) : 0;
    T* target = stage + row * Shape::kStride + column;
    const T* from = size > 0 ? begin + (row * stride + column) : source.data;
    if (source.aligned) {
      copy_16_bytes(target, from, size * int{sizeof(T)});
    } else {
      for (int i = 0; i < kPiece; ++i) target[i] = i < size ? from[i] : T{};
    }
  }
}

// A block's outputs, spread over its threads.
template <class T>
class Accumulator;

// A thread has the outputs (row + 16 i, column + 16 j); a warp's threads are 4 rows by 8 columns.
template <>
class Accumulator<float> {
 public:
  __device__ Accumulator() {
    for (int i = 0; i < kOutputs; ++i) {
      for (int j = 0; j < kOutputs; ++j) sums_[i][j] = 0.0f;
    }
  }

  template <Layout kLayoutA, Layout kLayoutB>
  __device__ void add(const float* a, const float* b) {
    MLMFAST_UNROLL(2)
    for (int k = 0; k < kDepth<float>; ++k) {
      float a_values[kOutputs], b_values[kOutputs];
      for (int i = 0; i < kOutputs; ++i) a_values[i] = element<kLayoutA>(a, row() + kSpacing * i, k);
      for (int j = 0; j < kOutputs; ++j) b_values[j] = element<kLayoutB>(b, column() + kSpacing * j, k);
      for (int i = 0; i < kOutputs; ++i) {
        for (int j = 0; j < kOutputs; ++j) sums_[i][j] = fmaf(a_values[i], b_values[j], sums_[i][j]);
      }
    }
  }

  __device__ void store(float* outputs) const {
    for (int i = 0; i < kOutputs; ++i) {
      for (int j = 0; j < kOutputs; ++j) {
        outputs[(row() + kSpacing * i) * kOutputStride + column() + kSpacing * j] = sums_[i][j];
      }
    }
  }

 private:
  static constexpr int kOutputs = 8, kSpacing = kTile / kOutputs;

  static __device__ int row() { return threadIdx.x / 64 * 4 + threadIdx.x % 32 / 8; }
  static __device__ int column() { return threadIdx.x / 32 % 2 * 8 + threadIdx.x % 8; }
  template <Layout kLayout>
  static __device__ float element(const float* stage, int outer, int k) {
    constexpr int kStride = StageShape<float, kLayout>::kStride;
    return kLayout == Layout::kDepthInner ? stage[outer * kStride + k] : stage[k * kStride + outer];
  }

  float sums_[kOutputs][kOutputs];
};

// The eight warps stand 2 by 4; each has 64 x 32 outputs, as 4 x 4 products of 16 x 8.
template <>
class Accumulator<bf16> {
 public:
  __device__ Accumulator() {
    for (auto& row : sums_) {
      for (auto& part : row) {
        for (float& sum : part) sum = 0.0f;
      }
    }
  }

  template <Layout kLayoutA, Layout kLayoutB>
  __device__ void add(const bf16* a, const bf16* b) {
    MLMFAST_UNROLL(2)
    for (int k = 0; k < kDepth<bf16>; k += kPart) {
      uint32_t b_parts[kPartsB][4], a_part[4];
      for (int j = 0; j < kPartsB; ++j) load_part<kLayoutB>(b_parts[j], b, column() + j * kPart, k);
      for (int i = 0; i < kPartsA; ++i) {
        load_part<kLayoutA>(a_part, a, row() + i * kPart, k);
        for (int j = 0; j < kPartsB; ++j) {
          multiply_add(sums_[i][2 * j], a_part, b_parts[j][0], b_parts[j][2]);
          multiply_add(sums_[i][2 * j + 1], a_part, b_parts[j][1], b_parts[j][3]);
        }
      }
    }
  }

  __device__ void store(float* outputs) const {
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < kPartsA; ++i) {
      for (int j = 0; j < 2 * kPartsB; ++j) {
        float* two = outputs + (row() + i * kPart + lane / 4) * kOutputStride + column() + j * 8 + lane % 4 * 2;
        *reinterpret_cast<float2*>(two) = {sums_[i][j][0], sums_[i][j][1]};
        *reinterpret_cast<float2*>(two + 8 * kOutputStride) = {sums_[i][j][2], sums_[i][j][3]};
      }
    }
  }

 private:
  static constexpr int kPart = 16, kPartsA = 4, kPartsB = 2;

  static __device__ int row() { return threadIdx.x / 128 * (kPartsA * kPart); }
  static __device__ int column() { return threadIdx.x / 32 % 4 * (kPartsB * kPart); }

  // 16 outer by 16 deep as four matrices of 8 x 8, two along the outer dimension in each half of the depth: what a
  // product takes as a, and the b of two products side by side.
  template <Layout kLayout>
  static __device__ void load_part(uint32_t (&words)[4], const bf16* stage, int outer, int k) {
    constexpr int kStride = StageShape<bf16, kLayout>::kStride;
    if constexpr (kLayout == Layout::kDepthInner) {
      load_matrices<false>(words, stage + outer * kStride + k,
                           [](int lane) { return lane % 16 * kStride + lane / 16 * 8; });
    } else {
      load_matrices<true>(words, stage + k * kStride + outer,
                          [](int lane) { return (lane / 16 * 8 + lane % 8) * kStride + lane / 8 % 2 * 8; });
    }
  }

  float sums_[kPartsA][2 * kPartsB][4];
};

// a [outer a, depth] times b [outer b, depth] transposed, the outputs from (a_begin, b_begin) on, as float [kTile,
// kOutputStride] at the start of the block's memory, ready for all threads. The whole block calls it; whatever it
// read there before must be behind a barrier.
template <class T, Layout kLayoutA, Layout kLayoutB>
__device__ float* tile_product(const Matrix<T>& a, int64_t a_begin, const Matrix<T>& b, int64_t b_begin) {
  unsigned char* memory = block_memory();
  const int64_t depth = kLayoutA == Layout::kDepthInner ? a.columns : a.rows;
  const int64_t num_steps = (depth + kDepth<T> - 1) / kDepth<T>;
  const auto stage = [&](int64_t step, int operand) {
    return reinterpret_cast<T*>(memory + (step % 2 * 2 + operand) * kStageBytes);
  };
  const auto load = [&](int64_t step) {
    const int64_t k = step * kDepth<T>;
    if constexpr (kLayoutA == Layout::kDepthInner) load_stage<T, kLayoutA>(stage(step, 0), a, a_begin, k);
    if constexpr (kLayoutA == Layout::kDepthOuter) load_stage<T, kLayoutA>(stage(step, 0), a, k, a_begin);
    if constexpr (kLayoutB == Layout::kDepthInner) load_stage<T, kLayoutB>(stage(step, 1), b, b_begin, k);
    if constexpr (kLayoutB == Layout::kDepthOuter) load_stage<T, kLayoutB>(stage(step, 1), b, k, b_begin);
  };
  Accumulator<T> sums;
  load(0);
  commit_copies();
  for (int64_t step = 0; step < num_steps; ++step) {
    if (step + 1 < num_steps) load(step + 1);
    commit_copies();
    wait_for_copies();
    __syncthreads();
    sums.template add<kLayoutA, kLayoutB>(stage(step, 0), stage(step, 1));
    __syncthreads();
  }
  float* outputs = reinterpret_cast<float*>(memory);
  sums.store(outputs);
  __syncthreads();
  return outputs;
}

}  // namespace mlmfast::cuda
