#include "cpu/sequence_body.h"
#include "cpu/vec_avx2.h"

namespace mlmfast {

extern const SequenceKernels kSequenceAvx2 = make_sequence_kernels<Avx2>();

}  // namespace mlmfast
