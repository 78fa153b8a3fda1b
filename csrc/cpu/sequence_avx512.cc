#include "cpu/sequence_body.h"
#include "cpu/vec_avx512.h"

namespace mlmfast {

extern const SequenceKernels kSequenceAvx512 = make_sequence_kernels<Avx512>();

}  // namespace mlmfast
