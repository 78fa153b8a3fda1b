// What the API's checks hand to the kernels, and the launches.
#pragma once

#include "mlmfast/cuda_scoring_rules.h"
#include "platform.h"
#include "rule_math.h"
#include "tile.h"

namespace mlmfast::cuda {

using Problem = mlmfast_cuda_rule_problem;

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

// Where several arrays lie in one piece of scratch memory; also counts the bytes.
class Scratch {
 public:
  explicit Scratch(void* memory = nullptr) : start_(reinterpret_cast<uintptr_t>(memory)) {}

  template <class T>
  T* take(int64_t size) {
    T* array = reinterpret_cast<T*>(start_ + num_bytes_);
    num_bytes_ += round_up(size * int64_t{sizeof(T)}, 16);
    return array;
  }
  int64_t num_bytes() const { return num_bytes_; }

 private:
  uintptr_t start_;
  int64_t num_bytes_ = 0;
};

RuleSettings rule_settings(const Problem& problem);

struct BiasVector {
  const void* data;  // or nullptr
  bool is_bf16;
};

inline BiasVector bias_vector(const Problem& problem) {
  return {problem.bias, problem.bias_type == MLMFAST_CUDA_BFLOAT16};
}

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

// Calls visit(column, product, bias) for the calling thread's columns of its row, up to num_columns.
template <class Visit>
__device__ void visit_columns(const LogitTile& tile, int num_columns, Visit&& visit) {
  const float* row = tile.products + thread_row() * kOutputStride;
  for (int column = 4 * thread_half(); column < num_columns; column += 8) {
    const float4 z = *reinterpret_cast<const float4*>(row + column);
    const float4 b = *reinterpret_cast<const float4*>(tile.bias + column);
    visit(column, z.x + b.x);
    if (column + 1 < num_columns) visit(column + 1, z.y + b.y);
    if (column + 2 < num_columns) visit(column + 2, z.z + b.z);
    if (column + 3 < num_columns) visit(column + 3, z.w + b.w);
  }
}

int64_t forward_scratch_bytes(const Problem& problem, int num_multiprocessors);
cudaError_t launch_forward(const Problem& problem, int num_multiprocessors, float* loss, Coefficients* coefficients,
                           void* scratch, cudaStream_t stream);

struct Gradients {
  void *input, *weight, *bias;  // nullptr: not wanted
};

// Scratch for `num_classes` classes at a time, a multiple of kTile.
int64_t backward_scratch_bytes(const Problem& problem, int64_t num_classes);
cudaError_t launch_backward(const Problem& problem, int64_t classes_at_a_time, const float* grad_loss,
                            const Coefficients* coefficients, const Gradients& gradients, void* scratch,
                            cudaStream_t stream);

}  // namespace mlmfast::cuda
