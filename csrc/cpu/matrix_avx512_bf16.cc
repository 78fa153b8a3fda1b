#include "cpu/matrix_body.h"
#include "cpu/vec_avx512_bf16.h"

namespace mlmfast {

extern const MatrixKernels kMatrixAvx512Bf16[] = {
    make_matrix_kernels<VectorTiles<Bf16x3Format<Avx512Bf16>>>(Precision::bf16x3, Isa::avx512_bf16),
    make_matrix_kernels<VectorTiles<Bf16x4Format<Avx512Bf16>>>(Precision::bf16x4, Isa::avx512_bf16),
    make_matrix_kernels<VectorTiles<Bfloat16Format<Avx512Bf16>>>(Precision::bfloat16, Isa::avx512_bf16),
};

}  // namespace mlmfast
