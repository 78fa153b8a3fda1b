// What every instruction set provides to the encoder besides matrix products: attention within one
// sequence, layer norm, rotary positions.
#pragma once

#include <cstdint>

#include "mlmfast/isa.h"

namespace mlmfast {

// One head over one sequence of `length` tokens, for the queries that are wanted.
struct HeadAttention {
  const float* queries;  // [num_queries, head_size], rows query_stride apart
  const float* keys;     // [length, head_size], rows key_stride apart
  const float* values;   // [length, head_size], rows key_stride apart
  int64_t query_stride, key_stride;
  const int32_t* query_positions;  // [num_queries], each query's place in the sequence
  int64_t num_queries, length, head_size;
  float scale;
  int64_t reach;  // a query sees the keys at most this far from it; negative: all
  float* output;  // [num_queries, head_size], rows output_stride apart
  int64_t output_stride;
};

struct SequenceKernels {
  int64_t width;  // floats of a vector

  // scratch: attention_scratch(length, head_size) floats, 64-byte aligned. A query's result does not
  // depend on which other queries are asked.
  void (*attend)(const HeadAttention& attention, float* scratch);
  int64_t (*attention_scratch)(int64_t length, int64_t head_size);

  // y = (x - mean) / sqrt(variance + eps) * weight + bias over `size` values; bias may be null.
  void (*layer_norm)(const float* x, int64_t size, const float* weight, const float* bias, float eps,
                     float* y);

  // x [2 half] rotated in place: pairs (i, half + i) by the angle of cosines[i], sines[i].
  void (*rotate)(float* x, const float* cosines, const float* sines, int64_t half);

  // out = a + b over `size` values.
  void (*add)(const float* a, const float* b, int64_t size, float* out);
};

extern const SequenceKernels kSequenceGeneric;
#ifdef MLMFAST_X86_64
extern const SequenceKernels kSequenceAvx2;
extern const SequenceKernels kSequenceAvx512;
#endif

inline const SequenceKernels& sequence_kernels(Isa isa) {
#ifdef MLMFAST_X86_64
  if (isa == Isa::avx2) return kSequenceAvx2;
  if (isa != Isa::generic) return kSequenceAvx512;
#endif
  return kSequenceGeneric;
}

}  // namespace mlmfast
