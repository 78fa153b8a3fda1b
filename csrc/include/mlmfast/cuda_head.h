/* The gathered vocabulary head on an NVIDIA GPU: the log-probabilities of some targets of each of N rows over V
 * classes, without ever storing [N, V]. cuda_api.h says what holds for every call. */
#ifndef MLMFAST_CUDA_HEAD_H
#define MLMFAST_CUDA_HEAD_H

#include <stdint.h>

#include "mlmfast/cuda_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rises whenever a caller would have to be compiled or written anew. */
#define MLMFAST_CUDA_HEAD_VERSION 1
MLMFAST_CUDA_API int32_t mlmfast_cuda_head_version(void);

typedef struct mlmfast_cuda_head_problem {
  int64_t num_rows;              /* N >= 0 */
  int64_t num_classes;           /* V, 1 to 2^31 - 1 */
  int64_t hidden_size;           /* D, 1 to 2^23 - 1 */
  int64_t num_targets;           /* T >= 0 */
  const void* hidden;            /* [N, D], of `type` */
  const void* weight;            /* [V, D], of `type` */
  const void* bias;              /* [V], of `bias_type`, or NULL */
  const int64_t* target_offsets; /* [N + 1], never falling, from 0 to T: row r owns the targets target_offsets[r] to,
                                    not including, target_offsets[r + 1], none or several */
  const int32_t* target_ids;     /* [T], 0 to V - 1; what is asked of any other is NaN, its rank -1 */
  int32_t type, bias_type;
} mlmfast_cuda_head_problem;

/* Where results go. Natural logs. All but log_prob may be NULL: not asked for. A row with a NaN among its logits, or an
 * infinite largest one, has NaN; a target whose log-probability is NaN has rank -1. */
typedef struct mlmfast_cuda_head_outputs {
  float* log_prob; /* [T] */
  float* logit;    /* [T] */
  float* lse;      /* [N] log of the sum of exp of a row's logits, also of rows without targets */
  float* entropy;  /* [N] nats, likewise */
  int32_t* rank;   /* [T] number of classes with a larger logit; takes a second sweep over the classes */
} mlmfast_cuda_head_outputs;

/* Bytes of scratch that mlmfast_cuda_head needs, on the current device. */
MLMFAST_CUDA_API int mlmfast_cuda_head_scratch(const mlmfast_cuda_head_problem* problem, int64_t* num_bytes);

/* scratch: at least as many bytes as asked for, at a multiple of 16. */
MLMFAST_CUDA_API int mlmfast_cuda_head(const mlmfast_cuda_head_problem* problem,
                                       const mlmfast_cuda_head_outputs* outputs, void* scratch, int64_t scratch_bytes,
                                       void* stream);

#ifdef __cplusplus
}
#endif

#endif /* MLMFAST_CUDA_HEAD_H */
