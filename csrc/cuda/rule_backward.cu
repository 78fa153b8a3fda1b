// Gradients: for some classes at a time the gradients of their logits are computed anew into scratch memory, and
// multiplied by the weight and by the input. Every output is summed by one thread in one order.
#include "logit_tile.h"
#include "rule_kernels.h"
#include "scratch.h"

namespace mlmfast::cuda {
namespace {

constexpr int kFlatThreads = 256;  // of the kernels with one thread per element

template <class T>
struct BackwardScratch {
  T* logit_gradients;       // [N, classes at a time]
  float* bias_sums;         // [row tiles, classes at a time]: sums of logit gradients over a tile's rows
  float* input_gradient;    // [N, D], where the gradient itself is not float

  BackwardScratch(const Problem& problem, int64_t num_classes, Scratch& scratch)
      : logit_gradients(scratch.take<T>(problem.num_rows * num_classes)),
        bias_sums(scratch.take<float>(divide_up(problem.num_rows, kTile) * num_classes)),
        input_gradient(std::is_same_v<T, float> ? nullptr
                                                : scratch.take<float>(problem.num_rows * problem.hidden_size)) {}
};

// The gradients of the logits of some classes, whose rows `weight` has, times the gradients of the losses; beyond the
// last class they mean nothing. first_class is the number of weight's first row.
template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    compute_logit_gradients(Matrix<T> input, Matrix<T> weight, BiasVector bias, const int64_t* target,
                            int64_t first_class, float class_share, const float* grad_loss,
                            const Coefficients* coefficients, int64_t stride, T* logit_gradients, float* bias_sums) {
  const int64_t row_begin = int64_t{blockIdx.x} * kTile, class_begin = int64_t{blockIdx.y} * kTile;
  const LogitTile tile = logit_tile(input, row_begin, weight, class_begin, bias);
  const int num_rows = clipped(input.rows - row_begin, kTile);

  Coefficients row_coefficients = ignored_row().coefficients;
  float row_grad_loss = 0.0f;
  int64_t target_column = -1;
  if (thread_row() < num_rows) {
    const int64_t row = row_begin + thread_row();
    row_coefficients = coefficients[row];
    row_grad_loss = row_coefficients.lse == INFINITY ? 0.0f : grad_loss[row];
    target_column = target[row] - first_class - class_begin;
  }
  float* row_gradients = tile.products + thread_row() * kOutputStride;
  visit_columns(tile, kTile, [&](int column, float z) {
    row_gradients[column] = logit_gradient(row_coefficients, class_share, z, column == target_column) * row_grad_loss;
  });
  __syncthreads();

  // Two threads per column now, each for half of the rows, so that neighbours write to neighbouring places.
  constexpr int kHalf = kTile / 2;
  const int column = threadIdx.x % kTile, first_row = threadIdx.x / kTile * kHalf;
  const int end_row = num_rows < first_row + kHalf ? num_rows : first_row + kHalf;
  float sum = 0.0f;
  for (int row = first_row; row < end_row; ++row) {
    const float g = tile.products[row * kOutputStride + column];
    sum += g;
    assign(logit_gradients[(row_begin + row) * stride + class_begin + column], g);
  }
  __syncthreads();
  if (first_row != 0) tile.products[column] = sum;
  __syncthreads();
  if (first_row == 0) bias_sums[int64_t{blockIdx.x} * stride + class_begin + column] = sum + tile.products[column];
}

// outputs [num_rows, num_columns] = a b, or outputs += a b.
template <class T, class Output, Layout kLayoutA>
__global__ void __launch_bounds__(kThreads, 2)
    multiply(Matrix<T> a, Matrix<T> b, bool add, int64_t num_rows, int64_t num_columns, Output* outputs) {
  const int64_t row_begin = int64_t{blockIdx.x} * kTile, column_begin = int64_t{blockIdx.y} * kTile;
  const float* products = tile_product<T, kLayoutA, Layout::kDepthOuter>(a, row_begin, b, column_begin);
  const int tile_column = threadIdx.x % kTile;
  const int64_t column = column_begin + tile_column;
  if (column >= num_columns) return;
  for (int tile_row = threadIdx.x / kTile; tile_row < kTile; tile_row += kThreads / kTile) {
    const int64_t row = row_begin + tile_row;
    if (row >= num_rows) return;
    Output& output = outputs[row * num_columns + column];
    const float product = products[tile_row * kOutputStride + tile_column];
    assign(output, add ? to_float(output) + product : product);
  }
}

__device__ inline int64_t flat_index() { return int64_t{blockIdx.x} * kFlatThreads + threadIdx.x; }

template <class Output>
__global__ void add_bias_sums(const float* bias_sums, int64_t num_row_tiles, int64_t stride, int64_t num_classes,
                              Output* grad_bias) {
  const int64_t k = flat_index();
  if (k >= num_classes) return;
  float sum = 0.0f;
  for (int64_t tile = 0; tile < num_row_tiles; ++tile) sum += bias_sums[tile * stride + k];
  assign(grad_bias[k], sum);
}

template <class Output>
__global__ void convert(const float* values, int64_t size, Output* converted) {
  const int64_t i = flat_index();
  if (i < size) assign(converted[i], values[i]);
}

dim3 tile_grid(int64_t num_rows, int64_t num_columns) {
  return {static_cast<unsigned>(divide_up(num_rows, kTile)), static_cast<unsigned>(divide_up(num_columns, kTile))};
}
dim3 flat_grid(int64_t size) { return {static_cast<unsigned>(divide_up(size, kFlatThreads))}; }

template <class T>
cudaError_t launch_products(const Problem& problem, int64_t classes_at_a_time, const float* grad_loss,
                            const Coefficients* coefficients, const Gradients& gradients, void* memory,
                            cudaStream_t stream) {
  const int64_t N = problem.num_rows, V = problem.num_classes, D = problem.hidden_size;
  const int64_t stride = classes_at_a_time;
  Scratch pieces(memory);
  const BackwardScratch<T> scratch(problem, classes_at_a_time, pieces);
  float* input_gradient = std::is_same_v<T, float> ? static_cast<float*>(gradients.input) : scratch.input_gradient;
  const T* weight_data = static_cast<const T*>(problem.weight);
  const Matrix<T> input = matrix(static_cast<const T*>(problem.input), N, D, D);

  for (int64_t begin = 0; begin < V; begin += classes_at_a_time) {
    const int64_t num_classes = V - begin < classes_at_a_time ? V - begin : classes_at_a_time;
    const Matrix<T> weight = matrix(weight_data + begin * D, num_classes, D, D);
    const Matrix<T> logit_gradients =
        matrix(static_cast<const T*>(scratch.logit_gradients), N, num_classes, stride);
    BiasVector bias = bias_vector(problem.bias, problem.bias_type);
    const int64_t bias_begin = begin * (bias.is_bf16 ? int64_t{sizeof(bf16)} : int64_t{sizeof(float)});
    if (bias.data != nullptr) bias.data = static_cast<const unsigned char*>(bias.data) + bias_begin;

    cudaError_t status =
        launch(compute_logit_gradients<T>, tile_grid(N, num_classes), kThreads, kLogitMemoryBytes, stream, input, weight,
               bias, problem.target, begin, rule_settings(problem).class_share, grad_loss, coefficients, stride,
               scratch.logit_gradients, scratch.bias_sums);
    if (status != cudaSuccess) return status;
    if (gradients.input != nullptr) {
      status = launch(multiply<T, float, Layout::kDepthInner>, tile_grid(N, D), kThreads, kTileBytes, stream,
                      logit_gradients, weight, begin > 0, N, D, input_gradient);
      if (status != cudaSuccess) return status;
    }
    if (gradients.weight != nullptr) {
      status = launch(multiply<T, T, Layout::kDepthOuter>, tile_grid(num_classes, D), kThreads, kTileBytes, stream,
                      logit_gradients, input, false, num_classes, D, static_cast<T*>(gradients.weight) + begin * D);
      if (status != cudaSuccess) return status;
    }
    if (gradients.bias != nullptr) {
      const auto add = [&](auto* grad_bias) {
        return launch(add_bias_sums<std::remove_pointer_t<decltype(grad_bias)>>, flat_grid(num_classes), kFlatThreads, 0,
                      stream, static_cast<const float*>(scratch.bias_sums), divide_up(N, kTile), stride, num_classes,
                      grad_bias + begin);
      };
      status = bias.is_bf16 ? add(static_cast<bf16*>(gradients.bias)) : add(static_cast<float*>(gradients.bias));
      if (status != cudaSuccess) return status;
    }
  }
  if constexpr (!std::is_same_v<T, float>) {
    if (gradients.input == nullptr) return cudaSuccess;
    return launch(convert<T>, flat_grid(N * D), kFlatThreads, 0, stream, static_cast<const float*>(input_gradient),
                  N * D, static_cast<T*>(gradients.input));
  }
  return cudaSuccess;
}

cudaError_t clear(void* gradient, int64_t size, int32_t type, cudaStream_t stream) {
  if (gradient == nullptr) return cudaSuccess;
  const int64_t element_size = type == MLMFAST_CUDA_BFLOAT16 ? sizeof(bf16) : sizeof(float);
  return cudaMemsetAsync(gradient, 0, size * element_size, stream);
}

}  // namespace

int64_t backward_scratch_bytes(const Problem& problem, int64_t num_classes) {
  Scratch scratch;
  if (problem.type == MLMFAST_CUDA_BFLOAT16) {
    BackwardScratch<bf16>(problem, num_classes, scratch);
  } else {
    BackwardScratch<float>(problem, num_classes, scratch);
  }
  return scratch.num_bytes();
}

cudaError_t launch_backward(const Problem& problem, int64_t classes_at_a_time, const float* grad_loss,
                            const Coefficients* coefficients, const Gradients& gradients, void* scratch,
                            cudaStream_t stream) {
  if (problem.num_rows == 0) {
    const cudaError_t status =
        clear(gradients.weight, problem.num_classes * problem.hidden_size, problem.type, stream);
    return status != cudaSuccess ? status : clear(gradients.bias, problem.num_classes, problem.bias_type, stream);
  }
  const auto launch_type = problem.type == MLMFAST_CUDA_BFLOAT16 ? launch_products<bf16> : launch_products<float>;
  return launch_type(problem, classes_at_a_time, grad_loss, coefficients, gradients, scratch, stream);
}

}  // namespace mlmfast::cuda
