// What every instruction set provides to the head: reductions over a row of a tile of logits.
#pragma once

#include <cstdint>

#include "mlmfast/isa.h"
#include "mlmfast/logit_sums.h"

namespace mlmfast {

constexpr int64_t kHeadColumns = 32;

struct HeadKernels {
  // These reductions take a multiple of kHeadColumns logits, 64-byte aligned.
  LogitSums (*sum_exp[2][2])(const float* logits, int64_t size);  // by whether rest_weighted, rest_squares are wanted
  void (*add)(const float* a, const float* b, int64_t size, float* sum);
  int64_t (*count_greater)(const float* logits, int64_t size, float threshold);

  // First index in [begin, size) with a logit above the threshold, or size. Needs no alignment;
  // may read a vector past size.
  int64_t (*find_greater)(const float* logits, int64_t begin, int64_t size, float threshold);

  // Any number of logits, 64-byte aligned.
  float (*sum)(const float* logits, int64_t size);
  TailSums (*sum_below)(const float* logits, int64_t size, float threshold);
};

extern const HeadKernels kHeadGeneric;
#ifdef MLMFAST_X86_64
extern const HeadKernels kHeadAvx2;
extern const HeadKernels kHeadAvx512;
#endif

inline const HeadKernels& head_kernels(Isa isa) {
  switch (isa) {
#ifdef MLMFAST_X86_64
    case Isa::avx2: return kHeadAvx2;
    case Isa::avx512:
    case Isa::avx512_bf16:
    case Isa::amx: return kHeadAvx512;
#endif
    default: return kHeadGeneric;
  }
}

}  // namespace mlmfast
