#include "cpu/head_body.h"
#include "cpu/vec_generic.h"

namespace mlmfast {

extern const HeadKernels kHeadGeneric = make_head_kernels<Generic>();

}  // namespace mlmfast
