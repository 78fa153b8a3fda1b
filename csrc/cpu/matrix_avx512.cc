#include "cpu/matrix_body.h"
#include "cpu/vec_avx512.h"

namespace mlmfast {

extern const MatrixKernels kMatrixAvx512[] = {
    make_matrix_kernels<VectorTiles<Float32Format<Avx512>>>(Precision::float32, Isa::avx512),
    make_matrix_kernels<VectorTiles<Bf16x3Format<Avx512>>>(Precision::bf16x3, Isa::avx512),
    make_matrix_kernels<VectorTiles<Bf16x4Format<Avx512>>>(Precision::bf16x4, Isa::avx512),
    make_matrix_kernels<VectorTiles<Bfloat16Format<Avx512>>>(Precision::bfloat16, Isa::avx512),
};

}  // namespace mlmfast
