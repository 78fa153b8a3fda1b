#include "cpu/matrix_body.h"
#include "cpu/vec_generic.h"

namespace mlmfast {

extern const MatrixKernels kMatrixGeneric[] = {
    make_matrix_kernels<VectorTiles<Float32Format<Generic>>>(Precision::float32, Isa::generic),
    make_matrix_kernels<VectorTiles<Bf16x3Format<Generic>>>(Precision::bf16x3, Isa::generic),
    make_matrix_kernels<VectorTiles<Bf16x4Format<Generic>>>(Precision::bf16x4, Isa::generic),
    make_matrix_kernels<VectorTiles<Bfloat16Format<Generic>>>(Precision::bfloat16, Isa::generic),
    make_matrix_kernels<VectorTiles<Int8Format<Generic>>>(Precision::int8, Isa::generic),
};

}  // namespace mlmfast
