#include "cpu/sequence_body.h"
#include "cpu/vec_generic.h"

namespace mlmfast {

extern const SequenceKernels kSequenceGeneric = make_sequence_kernels<Generic>();

}  // namespace mlmfast
