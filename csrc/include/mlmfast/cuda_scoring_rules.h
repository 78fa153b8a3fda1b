/* Fused linear layer and scoring rule on an NVIDIA GPU: the losses of N rows over V classes, and their gradients,
 * without ever storing [N, V]. cuda_api.h says what holds for every call. */
#ifndef MLMFAST_CUDA_SCORING_RULES_H
#define MLMFAST_CUDA_SCORING_RULES_H

#include <stdint.h>

#include "mlmfast/cuda_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rises whenever a caller would have to be compiled or written anew. */
#define MLMFAST_CUDA_RULE_VERSION 1
MLMFAST_CUDA_API int32_t mlmfast_cuda_rule_version(void);

#define MLMFAST_CUDA_RULE_LOG 0
#define MLMFAST_CUDA_RULE_BRIER 1
#define MLMFAST_CUDA_RULE_SPHERICAL 2

typedef struct mlmfast_cuda_rule_problem {
  int64_t num_rows;     /* N >= 0 */
  int64_t num_classes;  /* V, 1 to 2^31 - 1 */
  int64_t hidden_size;  /* D, 1 to 2^23 - 1 */
  const void* input;    /* [N, D], of `type` */
  const void* weight;   /* [V, D], of `type` */
  const void* bias;     /* [V], of `bias_type`, or NULL */
  const int64_t* target;  /* [N], 0 to V - 1 or ignore_index; the loss of any other is NaN */
  int64_t ignore_index;
  int32_t type, bias_type;
  int32_t rule;
  int32_t masked_log;   /* add -h sum {log p : p < h} when the rule is not the log score and smoothing > 0 */
  double smoothing;     /* 0 to 1; h = smoothing / V */
} mlmfast_cuda_rule_problem;

/* Bytes of scratch that mlmfast_cuda_rule_forward needs, on the current device. */
MLMFAST_CUDA_API int mlmfast_cuda_rule_forward_scratch(const mlmfast_cuda_rule_problem* problem, int64_t* num_bytes);

/* loss: float [N], 0 where ignored. coefficients: float [N, 7], `lse, A, B, C, U, D, target_gradient` of a row: the
 * loss's gradient by logit k is A p_k + B p_k^2 + C p_k + U + D [p_k < h] with p_k = exp(z_k - lse), and
 * target_gradient for the target; where ignored lse is +inf and the others are 0. A row with a NaN among its logits,
 * or an infinite largest one, has NaN. scratch: at least as many bytes as asked for, at a multiple of 16. */
MLMFAST_CUDA_API int mlmfast_cuda_rule_forward(const mlmfast_cuda_rule_problem* problem, float* loss,
                                               float* coefficients, void* scratch, int64_t scratch_bytes, void* stream);

/* Bytes of scratch for mlmfast_cuda_rule_backward: what all classes at once would take, but at most limit_bytes, but
 * at least what 128 classes at a time take. */
MLMFAST_CUDA_API int mlmfast_cuda_rule_backward_scratch(const mlmfast_cuda_rule_problem* problem, int64_t limit_bytes,
                                                        int64_t* num_bytes);

/* grad_loss, float [N], is the gradient of every row's loss. Of the gradients, grad_input [N, D] and grad_weight
 * [V, D] of `type` and grad_bias [V] of `bias_type`, those that are not NULL are written. As many classes are taken
 * at a time as scratch has room for. */
MLMFAST_CUDA_API int mlmfast_cuda_rule_backward(const mlmfast_cuda_rule_problem* problem, const float* grad_loss,
                                                const float* coefficients, void* grad_input, void* grad_weight,
                                                void* grad_bias, void* scratch, int64_t scratch_bytes, void* stream);

#ifdef __cplusplus
}
#endif

#endif /* MLMFAST_CUDA_SCORING_RULES_H */
