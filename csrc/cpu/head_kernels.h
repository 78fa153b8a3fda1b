// What every instruction set provides to the head: reductions over a row of a tile of logits.
#pragma once

#include <cstdint>
#include <limits>

#include "mlmfast/isa.h"

namespace mlmfast {

// Over logits z: max, sum of e = exp(z - max), and sum of e (z - max), from which the entropy follows.
// The lowest finite max stands for "nothing yet", so that a run of -inf does not become NaN.
struct LogSumExp {
  float max = std::numeric_limits<float>::lowest();
  float sum = 0;
  float weighted_sum = 0;
};

constexpr int64_t kHeadColumns = 32;

struct HeadKernels {
  // The reductions take a multiple of kHeadColumns logits, 64-byte aligned.
  LogSumExp (*log_sum_exp)(const float* logits, int64_t size);
  LogSumExp (*log_sum_exp_with_entropy)(const float* logits, int64_t size);
  void (*add)(const float* a, const float* b, int64_t size, float* sum);
  int64_t (*count_greater)(const float* logits, int64_t size, float threshold);

  // First index in [begin, size) with a logit above the threshold, or size. Needs no alignment;
  // may read a vector past size.
  int64_t (*find_greater)(const float* logits, int64_t begin, int64_t size, float threshold);
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
