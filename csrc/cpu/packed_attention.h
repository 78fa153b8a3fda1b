// Attention on matrix units, of queries, keys and values that wait as bfloat16.
#pragma once

#include <cstdint>

#include "cpu/matrix_kernels.h"

namespace mlmfast {

constexpr int64_t kAttentionRowUnit = 16;   // tokens a kernel may read at once
constexpr int64_t kAttentionHeadUnit = 32;  // head sizes are multiples of it

// All heads over the sequences of a block, which lie back to back. A word is two bfloat16, neighbours in the features;
// those of head h begin h head_size / 2 words behind the first. Queries, keys and values are readable up to
// kAttentionRowUnit - 1 tokens behind the last.
struct PackedAttention {
  const float* queries;  // [number of queries, query_stride] words
  const float* keys;     // [row_starts[num_sequences], key_stride] words
  const float* values;   // [row_starts[num_sequences], key_stride] words
  int64_t query_stride, key_stride;
  const int64_t* row_starts;    // [num_sequences + 1], of the tokens
  const int64_t* query_starts;  // [num_sequences + 1], of the queries that are wanted; the first is at query_starts[0]
  int64_t num_sequences;
  int64_t num_heads, head_size;
  float scale;
  OperandView output;  // a row of bfloat16 for each query
};

struct PackedAttentionKernels {
  // scratch: scratch(longest sequence, num_heads, head_size) floats, 64-byte aligned. A query's result does not depend
  // on the other queries and sequences.
  void (*attend)(const PackedAttention& attention, float* scratch);
  int64_t (*scratch)(int64_t longest, int64_t num_heads, int64_t head_size);
};

#ifdef MLMFAST_X86_64
extern const PackedAttentionKernels kPackedAttentionAmx;
#endif

// Those of a precision that rounds factors to bfloat16 or less, where an instruction set has them; else null.
inline const PackedAttentionKernels* packed_attention_kernels(Precision precision, Isa isa) {
#ifdef MLMFAST_X86_64
  if (isa == Isa::amx && (precision == Precision::bfloat16 || precision == Precision::int8)) return &kPackedAttentionAmx;
#endif
  return nullptr;
}

}  // namespace mlmfast
