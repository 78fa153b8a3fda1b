// Losses and coefficients: one sweep over the classes for the sums, a second one where the masked-log term needs the
// final log-sum-exp.
#include "class_sweep.h"
#include "rule_kernels.h"

namespace mlmfast::cuda {
namespace {

struct ForwardScratch {
  ClassSums* class_sums;    // [spans, N]; joined, [N]
  MaskedSums* masked_sums;  // [spans, N]
  float* target_logits;     // [N]

  ForwardScratch(const Problem& problem, int64_t num_spans, Scratch& scratch)
      : class_sums(scratch.take<ClassSums>(num_spans * problem.num_rows)),
        masked_sums(scratch.take<MaskedSums>(num_spans * problem.num_rows)),
        target_logits(scratch.take<float>(problem.num_rows)) {}
};

template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    sum_classes(Matrix<T> input, Matrix<T> weight, BiasVector bias, const int64_t* target, int64_t span_size,
                ClassSums* span_sums, float* target_logits) {
  const int64_t row = int64_t{blockIdx.x} * kTile + thread_row();
  const int64_t row_target = row < input.rows ? target[row] : -1;
  ClassSums sums = no_classes();
  visit_tiles(input, weight, bias, span_size, [&](const LogitTile& tile, int64_t class_begin, int num_columns) {
    add_tile(sums, tile, num_columns, [&](int column, float z) {
      sums.logits += z;
      if (class_begin + column == row_target) target_logits[row] = z;
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

// The joined sums of a row go to the first span's place.
__global__ void join_class_sums(int64_t num_rows, int64_t num_spans, ClassSums* span_sums, Coefficients* coefficients) {
  const int64_t row = row_of_thread();
  if (row >= num_rows) return;
  const ClassSums sums = joined_spans(span_sums, num_spans, num_rows, row);
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
    if (settings.masked_log) masked = joined_spans(span_masked_sums, num_spans, num_rows, row);
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
  const Spans spans = class_spans(N, V, num_multiprocessors);
  Scratch pieces(memory);
  const ForwardScratch scratch(problem, spans.num_spans, pieces);
  const Matrix<T> input = matrix(static_cast<const T*>(problem.input), N, D, D);
  const Matrix<T> weight = matrix(static_cast<const T*>(problem.weight), V, D, D);
  const BiasVector bias = bias_vector(problem.bias, problem.bias_type);
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
  ForwardScratch(problem, class_spans(problem.num_rows, problem.num_classes, num_multiprocessors).num_spans, scratch);
  return scratch.num_bytes();
}

cudaError_t launch_forward(const Problem& problem, int num_multiprocessors, float* loss, Coefficients* coefficients,
                           void* scratch, cudaStream_t stream) {
  if (problem.num_rows == 0) return cudaSuccess;
  const auto launch_type = problem.type == MLMFAST_CUDA_BFLOAT16 ? launch_sweeps<bf16> : launch_sweeps<float>;
  return launch_type(problem, num_multiprocessors, loss, coefficients, scratch, stream);
}

}  // namespace mlmfast::cuda
