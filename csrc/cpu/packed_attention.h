// Attention of queries, keys and values that wait as bfloat16, or as the high and low parts of bf16x3.
#pragma once

#include <cstdint>

#include "cpu/matrix_kernels.h"

namespace mlmfast {

constexpr int64_t kAttentionRowUnit = 16;   // tokens a kernel may read at once
constexpr int64_t kAttentionHeadUnit = 32;  // head sizes are multiples of it

// All heads over the sequences of a block, which lie back to back. A word is two bfloat16, neighbours in the features;
// those of head h begin h head_size / 2 words behind the first, and low parts a plane behind the high ones. Queries, keys and values are readable up to
// kAttentionRowUnit - 1 tokens behind the last.
struct PackedAttention {
  const float* queries;  // [number of queries, query_stride] words
  const float* keys;     // [row_starts[num_sequences], key_stride] words
  const float* values;   // [row_starts[num_sequences], key_stride] words
  int64_t query_stride, key_stride;
  int64_t query_plane, key_plane;
  const int64_t* row_starts;    // [num_sequences + 1], of the tokens
  const int64_t* query_starts;  // [num_sequences + 1], of the queries that are wanted; the first is at query_starts[0]
  int64_t num_sequences;
  int64_t num_heads, head_size;
  float scale;
  OperandView output;  // a row for each query, 64-byte aligned
};

struct PackedAttentionKernels {
  int64_t num_planes;
  // `size` values, a multiple of kAttentionHeadUnit, as words; 64-byte aligned, as plane_words has to be.
  void (*encode)(const float* values, int64_t size, float* words, int64_t plane_words);
  // scratch: scratch(longest sequence, num_heads, head_size) floats, 64-byte aligned. A query's result does not depend
  // on the other queries and sequences.
  void (*attend)(const PackedAttention& attention, float* scratch);
  int64_t (*scratch)(int64_t longest, int64_t num_heads, int64_t head_size);
};

#ifdef MLMFAST_X86_64
extern const PackedAttentionKernels kPackedAttentionAmx, kPackedAttentionAmxBf16x3, kPackedAttentionAmxBf16x4;
extern const PackedAttentionKernels kPackedAttentionAvx512Bf16;
#endif

// Those of a precision on an instruction set, where that multiplies bfloat16; else null, as for bf16x3 and bf16x4 where
// they take longer than float32.
inline const PackedAttentionKernels* packed_attention_kernels(Precision precision, Isa isa) {
#ifdef MLMFAST_X86_64
  const bool rounds = precision == Precision::bfloat16 || precision == Precision::int8;
  if (isa == Isa::avx512_bf16 && rounds) return &kPackedAttentionAvx512Bf16;
  if (isa == Isa::amx && rounds) return &kPackedAttentionAmx;
  if (isa == Isa::amx && precision == Precision::bf16x3) return &kPackedAttentionAmxBf16x3;
  if (isa == Isa::amx && precision == Precision::bf16x4) return &kPackedAttentionAmxBf16x4;
#endif
  return nullptr;
}

}  // namespace mlmfast
