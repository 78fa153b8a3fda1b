#include "cpu/head_body.h"
#include "cpu/vec_avx512.h"

namespace mlmfast {

extern const HeadKernels kHeadAvx512 = make_head_kernels<Avx512>();

}  // namespace mlmfast
