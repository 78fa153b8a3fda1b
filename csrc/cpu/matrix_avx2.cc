#include "cpu/matrix_body.h"
#include "cpu/vec_avx2.h"

namespace mlmfast {

extern const MatrixKernels kMatrixAvx2[] = {
    make_matrix_kernels<VectorTiles<Float32Format<Avx2>>>(Precision::float32, Isa::avx2),
    make_matrix_kernels<VectorTiles<Bf16x3Format<Avx2>>>(Precision::bf16x3, Isa::avx2),
    make_matrix_kernels<VectorTiles<Bf16x4Format<Avx2>>>(Precision::bf16x4, Isa::avx2),
    make_matrix_kernels<VectorTiles<Bfloat16Format<Avx2>>>(Precision::bfloat16, Isa::avx2),
    make_matrix_kernels<VectorTiles<Int8Format<Avx2>>>(Precision::int8, Isa::avx2),
};

}  // namespace mlmfast
