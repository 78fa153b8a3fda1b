// Attention over hidden states that are not projected to keys and values.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/sequence_kernels.h"
#include "mlmfast/aligned_buffer.h"
#include "mlmfast/matrix.h"

namespace mlmfast {

// For every head, q . (W_k x + b_k) is (W_k^T q) . x but for what is the same for all x, and the sum of
// p (W_v x + b_v) is W_v (the sum of p x) + b_v: two products a query instead of two a token.
class HiddenAttention {
 public:
  // key, value: the weights [H, H]; value_bias [H] or null.
  HiddenAttention(const ReadRows& key, const ReadRows& value, const float* value_bias, int64_t hidden_size,
                  int64_t num_heads, const MatrixKernels& products, const SequenceKernels& kernels);

  struct Scratch {
    AlignedBuffer queries, contexts;  // [queries, heads, H]
    AlignedBuffer attention;
  };

  // Queries [n, H] become their contexts: those of row r are [query_starts[r], query_starts[r + 1]), from 0 on, and see
  // the hidden states x [*, H] of [row_starts[r], row_starts[r + 1]). operand: scratch, too.
  void attend(float* queries, const int64_t* query_starts, const float* x, const int64_t* row_starts, int64_t num_rows,
              Operand& operand, Scratch& scratch) const;

 private:
  void attend_together(float* queries, const int64_t* query_starts, const float* x, const int64_t* row_starts,
                       int64_t num_rows, Operand& operand, Scratch& scratch) const;

  const SequenceKernels& kernels_;
  int64_t hidden_, head_size_;
  std::vector<Linear> keys_, values_;  // per head: W_k^T [H, head size] of its rows, and its rows of W_v
};

}  // namespace mlmfast
