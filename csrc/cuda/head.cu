// The head: one sweep over the classes for the sums of every row and the logits of its targets, a second one where
// their ranks are asked for, which are counted against those logits. Both sweeps make the same bits of a logit.
#include "class_sweep.h"
#include "head_kernels.h"
#include "head_math.h"

namespace mlmfast::cuda {
namespace {

struct Targets {
  const int64_t* offsets;  // [N + 1]
  const int32_t* ids;      // [T]
};

// The row among [begin, end), one of which owns the target.
__device__ inline int64_t row_of_target(const Targets& targets, int64_t begin, int64_t end, int64_t target) {
  while (end - begin > 1) {
    const int64_t middle = begin + (end - begin) / 2;
    if (targets.offsets[middle] <= target) {
      begin = middle;
    } else {
      end = middle;
    }
  }
  return begin;
}

// Of the block's rows.
struct BlockTargets {
  int64_t row_begin, row_end;
  int64_t begin, end;

  __device__ BlockTargets(const Targets& targets, int64_t num_rows)
      : row_begin(int64_t{blockIdx.x} * kTile),
        row_end(row_begin + clipped(num_rows - row_begin, kTile)),
        begin(targets.offsets[row_begin]),
        end(targets.offsets[row_end]) {}

  // Within the tile.
  __device__ int row_of(const Targets& targets, int64_t target) const {
    return static_cast<int>(row_of_target(targets, row_begin, row_end, target) - row_begin);
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    sum_head_classes(Matrix<T> hidden, Matrix<T> weight, BiasVector bias, Targets targets, int64_t span_size,
                     HeadSums* span_sums, float* target_logits) {
  HeadSums sums;
  visit_tiles(hidden, weight, bias, span_size, [&](const LogitTile& tile, int64_t class_begin, int num_columns) {
    add_tile(sums, tile, num_columns, [](int, float) {});
    const BlockTargets of_block(targets, hidden.rows);
    for (int64_t target = of_block.begin + threadIdx.x; target < of_block.end; target += kThreads) {
      const int64_t column = targets.ids[target] - class_begin;
      if (column < 0 || column >= num_columns) continue;
      target_logits[target] =
          tile.products[of_block.row_of(targets, target) * kOutputStride + column] + tile.bias[column];
    }
  });
  write_row_sums(sums, hidden.rows, span_sums);
}

// Adds to the ranks, which are 0 before. Integers: their order does not matter.
template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    count_greater(Matrix<T> hidden, Matrix<T> weight, BiasVector bias, Targets targets, int64_t span_size,
                  const float* target_logits, int32_t* rank) {
  visit_tiles(hidden, weight, bias, span_size, [&](const LogitTile& tile, int64_t, int num_columns) {
    const BlockTargets of_block(targets, hidden.rows);
    // Two threads to a target, each for a half of its row.
    for (int64_t i = 2 * of_block.begin + threadIdx.x; i < 2 * of_block.end; i += kThreads) {
      const int64_t target = i / 2;
      const float logit = target_logits[target];
      int count = 0;
      visit_columns(tile, of_block.row_of(targets, target), thread_half(), num_columns,
                    [&](int, float z) { count += z > logit; });
      if (count > 0) atomicAdd(&rank[target], count);
    }
  });
}

// The joined sums of a row go to the first span's place.
__global__ void join_head_sums(int64_t num_rows, int64_t num_spans, HeadSums* span_sums, float* lse, float* entropies) {
  const int64_t row = row_of_thread();
  if (row >= num_rows) return;
  const HeadSums sums = joined_spans(span_sums, num_spans, num_rows, row);
  span_sums[row] = sums;
  if (lse != nullptr) lse[row] = log_sum_exp(sums);
  if (entropies != nullptr) entropies[row] = entropy(sums);
}

// One thread per target; one that is no class has nothing in target_logits.
__global__ void finish_targets(int64_t num_rows, int64_t num_classes, int64_t num_targets, Targets targets,
                               const HeadSums* sums, const float* target_logits, HeadOutputs outputs) {
  const int64_t target = row_of_thread();
  if (target >= num_targets) return;
  const bool is_class = targets.ids[target] >= 0 && targets.ids[target] < num_classes;
  const float logit = is_class ? target_logits[target] : NAN;
  const float value = log_prob(sums[row_of_target(targets, 0, num_rows, target)], logit);
  outputs.log_prob[target] = value;
  if (outputs.logit != nullptr) outputs.logit[target] = logit;
  if (outputs.rank != nullptr && value != value) outputs.rank[target] = -1;
}

struct HeadScratch {
  HeadSums* sums;        // [spans, N]; joined, [N]
  float* target_logits;  // [T]

  HeadScratch(const HeadProblem& problem, int64_t num_spans, Scratch& scratch)
      : sums(scratch.take<HeadSums>(num_spans * problem.num_rows)),
        target_logits(scratch.take<float>(problem.num_targets)) {}
};

template <class T>
cudaError_t launch_sweeps(const HeadProblem& problem, int num_multiprocessors, const HeadOutputs& outputs, void* memory,
                          cudaStream_t stream) {
  const int64_t N = problem.num_rows, V = problem.num_classes, D = problem.hidden_size;
  const int64_t num_targets = problem.num_targets;
  const Spans spans = class_spans(N, V, num_multiprocessors);
  Scratch pieces(memory);
  const HeadScratch scratch(problem, spans.num_spans, pieces);
  const Matrix<T> hidden = matrix(static_cast<const T*>(problem.hidden), N, D, D);
  const Matrix<T> weight = matrix(static_cast<const T*>(problem.weight), V, D, D);
  const BiasVector bias = bias_vector(problem.bias, problem.bias_type);
  const Targets targets{problem.target_offsets, problem.target_ids};
  const dim3 sweep_grid{static_cast<unsigned>(divide_up(N, kTile)), static_cast<unsigned>(spans.num_spans)};
  const auto one_thread_each = [](int64_t count) { return dim3{static_cast<unsigned>(divide_up(count, kRowThreads))}; };

  cudaError_t status = launch(sum_head_classes<T>, sweep_grid, kThreads, kLogitMemoryBytes, stream, hidden, weight, bias,
                              targets, spans.size, scratch.sums, scratch.target_logits);
  if (status != cudaSuccess) return status;
  status = launch(join_head_sums, one_thread_each(N), kRowThreads, 0, stream, N, spans.num_spans, scratch.sums,
                  outputs.lse, outputs.entropy);
  if (status != cudaSuccess || num_targets == 0) return status;
  if (outputs.rank != nullptr) {
    status = cudaMemsetAsync(outputs.rank, 0, num_targets * sizeof(int32_t), stream);
    if (status != cudaSuccess) return status;
    status = launch(count_greater<T>, sweep_grid, kThreads, kLogitMemoryBytes, stream, hidden, weight, bias, targets,
                    spans.size, scratch.target_logits, outputs.rank);
    if (status != cudaSuccess) return status;
  }
  return launch(finish_targets, one_thread_each(num_targets), kRowThreads, 0, stream, N, V, num_targets, targets,
                scratch.sums, scratch.target_logits, outputs);
}

}  // namespace

int64_t head_scratch_bytes(const HeadProblem& problem, int num_multiprocessors) {
  Scratch scratch;
  HeadScratch(problem, class_spans(problem.num_rows, problem.num_classes, num_multiprocessors).num_spans, scratch);
  return scratch.num_bytes();
}

cudaError_t launch_head(const HeadProblem& problem, int num_multiprocessors, const HeadOutputs& outputs, void* scratch,
                        cudaStream_t stream) {
  if (problem.num_rows == 0) return cudaSuccess;
  const auto launch_type = problem.type == MLMFAST_CUDA_BFLOAT16 ? launch_sweeps<bf16> : launch_sweeps<float>;
  return launch_type(problem, num_multiprocessors, outputs, scratch, stream);
}

}  // namespace mlmfast::cuda
