#include "cpu/matrix_body.h"
#include "cpu/vec_avx512_vnni.h"

namespace mlmfast {

extern const MatrixKernels kMatrixAvx512Vnni[] = {
    make_matrix_kernels<VectorTiles<Int8Format<Avx512Vnni>>>(Precision::int8, Isa::avx512),
};

}  // namespace mlmfast
