// A sweep over the classes for sums of every row: a block takes one tile of rows and a span of the classes; the spans
// are joined in their order.
#pragma once

#include <algorithm>
#include <cmath>

#include "logit_tile.h"
#include "scratch.h"

namespace mlmfast::cuda {

struct Spans {
  int64_t num_spans;
  int64_t size;  // classes in a span, a multiple of kTile
};

inline Spans class_spans(int64_t num_rows, int64_t num_classes, int num_multiprocessors) {
  constexpr int64_t kBlocksPerMultiprocessor = 8;  // two at a time, and four rounds so that none waits long at the end
  const int64_t row_tiles = divide_up(num_rows, kTile), class_tiles = divide_up(num_classes, kTile);
  const int64_t wanted = divide_up(kBlocksPerMultiprocessor * num_multiprocessors, std::max<int64_t>(row_tiles, 1));
  const int64_t size = divide_up(class_tiles, std::min(wanted, class_tiles));
  return {divide_up(class_tiles, size), size * kTile};
}

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

// Adds a tile to the sums of the calling thread's row, its largest logit first; visits each column on the way.
template <class Sums, class Visit>
__device__ void add_tile(Sums& sums, const LogitTile& tile, int num_columns, Visit&& visit) {
  float max = -INFINITY;
  int max_column = -1;
  visit_columns(tile, num_columns, [&](int column, float z) {
    visit(column, z);
    if (z > max) {
      max = z;
      max_column = column;
    }
  });
  const int left_out = max > sums.max ? max_column : -1;
  raise_max(sums, max);
  visit_columns(tile, num_columns, [&](int column, float z) {
    if (column != left_out) add_class(sums, z);
  });
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

// Of the kernels with one thread per row or per target.
constexpr int kRowThreads = 128;
__device__ inline int64_t row_of_thread() { return int64_t{blockIdx.x} * kRowThreads + threadIdx.x; }

// A row's sums over all spans.
template <class Sums>
__device__ Sums joined_spans(const Sums* span_sums, int64_t num_spans, int64_t num_rows, int64_t row) {
  Sums sums = span_sums[row];
  for (int64_t span = 1; span < num_spans; ++span) sums = joined(sums, span_sums[span * num_rows + row]);
  return sums;
}

}  // namespace mlmfast::cuda
