"""The gradient of the logits of some classes, from the coefficients of the forward pass."""

from __future__ import annotations

import triton
import triton.language as tl

from mlmfast.kernels.triton.tiles import logit_tile


@triton.jit(do_not_specialize=["num_rows", "num_classes", "first_class"])
def gradient_kernel(
    input_ptr,
    weight_ptr,
    bias_ptr,
    target_ptr,  # int64[N]
    coefficients_ptr,  # float32[N, 7]
    grad_loss_ptr,  # float32[N]
    gradient_ptr,  # [N, row_stride], written: classes from first_class on; past the vocabulary, anything
    bias_sums_ptr,  # float32[row blocks, row_stride], likewise: summed over a block's rows
    num_rows,
    num_classes,
    num_features,
    first_class,  # a multiple of CLASSES
    row_stride,  # a multiple of CLASSES
    h,
    SUMS_FOR_BIAS: tl.constexpr,
    ROWS: tl.constexpr,
    CLASSES: tl.constexpr,
    FEATURES: tl.constexpr,
    PRODUCT_IN_FLOAT32: tl.constexpr,
):
    """Program (i, j): rows of block i, tile j of the classes from first_class on."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < num_rows
    real_rows = tl.minimum(rows, num_rows - 1)
    columns = tl.program_id(1) * CLASSES + tl.arange(0, CLASSES)
    classes = first_class + columns
    logits = logit_tile(
        input_ptr,
        weight_ptr,
        bias_ptr,
        real_rows,
        classes,
        num_classes,
        num_features,
        FEATURES,
        PRODUCT_IN_FLOAT32,
    )
    target = tl.load(target_ptr + real_rows).to(tl.int32)
    grad_loss = tl.load(grad_loss_ptr + rows, mask=inside, other=0.0)
    place = coefficients_ptr + real_rows * 7
    a = tl.load(place + 1)[:, None]
    b = tl.load(place + 2)[:, None]
    u = tl.load(place + 4)[:, None]
    d = tl.load(place + 5)[:, None]
    p = tl.exp(logits - tl.load(place)[:, None])
    gradient = (a + b * p) * p + u + tl.where(p < h, d, 0.0)
    is_target = classes[None, :] == target[:, None]
    gradient = tl.where(is_target, tl.load(place + 6)[:, None], gradient) * grad_loss[:, None]
    tl.store(
        gradient_ptr + rows[:, None] * row_stride + columns[None, :],
        gradient.to(gradient_ptr.dtype.element_ty),
        mask=inside[:, None],
    )
    if SUMS_FOR_BIAS:
        sums = tl.sum(gradient, axis=0)
        tl.store(bias_sums_ptr + tl.program_id(0).to(tl.int64) * row_stride + columns, sums)
