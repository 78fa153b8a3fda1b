#include "cpu/head_body.h"
#include "cpu/vec_avx2.h"

namespace mlmfast {

extern const HeadKernels kHeadAvx2 = make_head_kernels<Avx2>();

}  // namespace mlmfast
