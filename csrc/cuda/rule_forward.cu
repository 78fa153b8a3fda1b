// Losses and coefficients: one sweep over the classes for the sums, a second one where the masked-log term needs the
// final log-sum-exp. A block takes one tile of rows and a span of the classes; the spans are joined in their order.
#include <algorithm>

#include "rule_kernels.h"

namespace mlmfast::cuda {
namespace {

constexpr int kRowThreads = 128;  // of the kernels with one thread per row

struct Spans {
  int64_t num_spans;
  int64_t size;  // classes in a span, a multiple of kTile
};

Spans class_spans(const Problem& problem, int num_multiprocessors) {
  constexpr int64_t kBlocksPerMultiprocessor = 8;  // two at a time, and four rounds so that none waits long at the end
  const int64_t row_tiles = divide_up(problem.num_rows, kTile), class_tiles = divide_up(problem.num_classes, kTile);
  const int64_t wanted = divide_up(kBlocksPerMultiprocessor * num_multiprocessors, std::max<int64_t>(row_tiles, 1));
  const int64_t size = divide_up(class_tiles, std::min(wanted, class_tiles));
  return {divide_up(class_tiles, size), size * kTile};
}

struct ForwardScratch {
  ClassSums* class_sums;    // [spans, N]; joined, [N]
  MaskedSums* masked_sums;  // [spans, N]
  float* target_logits;     // [N]

  ForwardScratch(const Problem& problem, int64_t num_spans, Scratch& scratch)
      : class_sums(scratch.take<ClassSums>(num_spans * problem.num_rows)),
        masked_sums(scratch.take<MaskedSums>(num_spans * problem.num_rows)),
        target_logits(scratch.take<float>(problem.num_rows)) {}
};

// Calls visit_tile(tile, class_begin, num_columns) for every tile of the block's span, between barriers.
template <class T, class VisitTile>
__device__ void visit_tiles(const Matrix<T>& input, const Matrix<T>& weight, BiasVector bias, int64_t span_size,
                            VisitTile&& visit_tile) {
  const int64_t row_begin = int64_t{blockIdx.x} * kTile;
  const int64_t begin = int64_t{blockIdx.y} * span_size;
  const int64_t end = begin + span_size < weight.rows ? begin + span_size : weight.rows;
  for (int64_t class_begin = begin; class_begin < end; class_begin += kTile) {
    const LogitTile tile = logit_tile(input, row_begin, weight, class_begin, bias);
    visit_tile(tile, class_begin, clipped(end - class_begin, kTile));
    __syncthreads();
  }
}

// Joins the sums of a row's two threads and writes them for the row and the span.
template <class Sums>
__device__ void write_row_sums(const Sums& sums, int64_t num_rows, Sums* span_sums) {
  Sums* odd_sums = reinterpret_cast<Sums*>(block_memory());
  if (thread_half() == 1) odd_sums[thread_row()] = sums;
  __syncthreads();
  const int64_t row = int64_t{blockIdx.x} * kTile + thread_row();
  if (thread_half() == 0 && row < num_rows) {
    span_sums[int64_t{blockIdx.y} * num_rows + row] = joined(sums, odd_sums[thread_row()]);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    sum_classes(Matrix<T> input, Matrix<T> weight, BiasVector bias, const int64_t* target, int64_t span_size,
                ClassSums* span_sums, float* target_logits) {
  const int64_t row = int64_t{blockIdx.x} * kTile + thread_row();
  const int64_t row_target = row < input.rows ? target[row] : -1;
  ClassSums sums = no_classes();
  visit_tiles(input, weight, bias, span_size, [&](const LogitTile& tile, int64_t class_begin, int num_columns) {
    float max = -INFINITY;
    int max_column = -1;
    visit_columns(tile, num_columns, [&](int column, float z) {
      sums.logits += z;
      if (z > max) {
        max = z;
        max_column = column;
      }
      if (class_begin + column == row_target) target_logits[row] = z;
    });
    const int left_out = max > sums.max ? max_column : -1;
    raise_max(sums, max);
    visit_columns(tile, num_columns, [&](int column, float z) {
      if (column != left_out) add_class(sums, z);
    });
  });
  write_row_sums(sums, input.rows, span_sums);
}

template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    sum_masked(Matrix<T> input, Matrix<T> weight, BiasVector bias, RuleSettings settings, int64_t span_size,
               const Coefficients* coefficients, MaskedSums* span_sums) {
  const int64_t row = int64_t{blockIdx.x} * kTile + thread_row();
  const float lse = row < input.rows ? coefficients[row].lse : 0.0f;
  MaskedSums sums{0, 0.0f};
  visit_tiles(input, weight, bias, span_size, [&](const LogitTile& tile, int64_t, int num_columns) {
    visit_columns(tile, num_columns, [&](int, float z) { add_if_masked(sums, settings, z, lse); });
  });
  write_row_sums(sums, input.rows, span_sums);
}

__device__ inline int64_t row_of_thread() { return int64_t{blockIdx.x} * kRowThreads + threadIdx.x; }

// The joined sums of a row go to the first span's place.
__global__ void join_class_sums(int64_t num_rows, int64_t num_spans, ClassSums* span_sums, Coefficients* coefficients) {
  const int64_t row = row_of_thread();
  if (row >= num_rows) return;
  ClassSums sums = span_sums[row];
  for (int64_t span = 1; span < num_spans; ++span) sums = joined(sums, span_sums[span * num_rows + row]);
  span_sums[row] = sums;
  coefficients[row].lse = log_sum_exp(sums);
}

__global__ void finish_rows(int64_t num_rows, int64_t num_classes, int64_t num_spans, RuleSettings settings,
                            const int64_t* target, int64_t ignore_index, const ClassSums* sums,
                            const MaskedSums* span_masked_sums, const float* target_logits, float* loss,
                            Coefficients* coefficients) {
  const int64_t row = row_of_thread();
  if (row >= num_rows) return;
  RowResult result = ignored_row();
  if (target[row] != ignore_index) {
    MaskedSums masked{0, 0.0f};
    if (settings.masked_log) {
      for (int64_t span = 0; span < num_spans; ++span) masked = joined(masked, span_masked_sums[span * num_rows + row]);
    }
    const bool is_class = target[row] >= 0 && target[row] < num_classes;
    result = row_result(settings, sums[row], is_class ? target_logits[row] : NAN, masked);
  }
  loss[row] = result.loss;
  coefficients[row] = result.coefficients;
}

template <class T>
cudaError_t launch_sweeps(const Problem& problem, int num_multiprocessors, float* loss, Coefficients* coefficients,
                          void* memory, cudaStream_t stream) {
  const int64_t N = problem.num_rows, V = problem.num_classes, D = problem.hidden_size;
  const Spans spans = class_spans(problem, num_multiprocessors);
  Scratch pieces(memory);
  const ForwardScratch scratch(problem, spans.num_spans, pieces);
  const Matrix<T> input = matrix(static_cast<const T*>(problem.input), N, D, D);
  const Matrix<T> weight = matrix(static_cast<const T*>(problem.weight), V, D, D);
  const BiasVector bias = bias_vector(problem);
  const RuleSettings settings = rule_settings(problem);
  const dim3 sweep_grid{static_cast<unsigned>(divide_up(N, kTile)), static_cast<unsigned>(spans.num_spans)};
  const dim3 row_grid{static_cast<unsigned>(divide_up(N, kRowThreads))};

  cudaError_t status = launch(sum_classes<T>, sweep_grid, kThreads, kLogitMemoryBytes, stream, input, weight, bias,
                              problem.target, spans.size, scratch.class_sums, scratch.target_logits);
  if (status != cudaSuccess) return status;
  status = launch(join_class_sums, row_grid, kRowThreads, 0, stream, N, spans.num_spans, scratch.class_sums,
                  coefficients);
  if (status != cudaSuccess) return status;
  if (settings.masked_log) {
    status = launch(sum_masked<T>, sweep_grid, kThreads, kLogitMemoryBytes, stream, input, weight, bias, settings,
                    spans.size, coefficients, scratch.masked_sums);
    if (status != cudaSuccess) return status;
  }
  return launch(finish_rows, row_grid, kRowThreads, 0, stream, N, V, spans.num_spans, settings, problem.target,
                problem.ignore_index, scratch.class_sums, scratch.masked_sums, scratch.target_logits, loss,
                coefficients);
}

}  // namespace

int64_t forward_scratch_bytes(const Problem& problem, int num_multiprocessors) {
  Scratch scratch;
  ForwardScratch(problem, class_spans(problem, num_multiprocessors).num_spans, scratch);
  return scratch.num_bytes();
}

cudaError_t launch_forward(const Problem& problem, int num_multiprocessors, float* loss, Coefficients* coefficients,
                           void* scratch, cudaStream_t stream) {
  if (problem.num_rows == 0) return cudaSuccess;
  const auto launch_type = problem.type == MLMFAST_CUDA_BFLOAT16 ? launch_sweeps<bf16> : launch_sweeps<float>;
  return launch_type(problem, num_multiprocessors, loss, coefficients, scratch, stream);
}

}  // namespace mlmfast::cuda
