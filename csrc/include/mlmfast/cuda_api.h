/* What the functions of libmlmfast_cuda have in common: cuda_head.h, cuda_scoring_rules.h.
 *
 * All pointers but those to a struct and to a byte count are the device's, of dense row-major arrays; work is queued on
 * the given stream (a cudaStream_t) of the current device, and nothing waits for it. The same call gives the same bits
 * on the same kind of device. Only a problem's numbers and which pointers are NULL are checked. Every function returns
 * 0, or else leaves a message in mlmfast_cuda_last_error(). */
#ifndef MLMFAST_CUDA_API_H
#define MLMFAST_CUDA_API_H

#ifdef __GNUC__
#define MLMFAST_CUDA_API __attribute__((visibility("default")))
#else
#define MLMFAST_CUDA_API
#endif

/* Types of array elements. float32 is multiplied and summed in float32; bfloat16 is multiplied on the matrix units
 * and summed in float32. */
#define MLMFAST_CUDA_FLOAT32 0
#define MLMFAST_CUDA_BFLOAT16 1

#ifdef __cplusplus
extern "C" {
#endif

/* What a thread's last failed call says. Empty before any. Valid until the thread's next call. */
MLMFAST_CUDA_API const char* mlmfast_cuda_last_error(void);

#ifdef __cplusplus
}
#endif

#endif /* MLMFAST_CUDA_API_H */
