"""The masked-log term: classes less likely than h = smoothing / V get the log rule.

Which they are is known only once lse is, so this sweeps the vocabulary a second time.
Formula: Shao et al. 2024 (arXiv:2405.18906), section 3.3.
"""

from __future__ import annotations

import triton
import triton.language as tl

from mlmfast.kernels.triton.tiles import logit_tile


@triton.jit(do_not_specialize=["num_rows", "num_classes", "tiles_per_split"])
def tail_kernel(
    input_ptr,
    weight_ptr,
    bias_ptr,
    coefficients_ptr,  # float32[N, 7]: lse is read, +inf in ignored rows
    partial_ptr,  # float32[2, splits, N], written: how many classes are in the tail, their sum of -log p
    num_rows,
    num_classes,
    num_features,
    tiles_per_split,
    log_h,
    ROWS: tl.constexpr,
    CLASSES: tl.constexpr,
    FEATURES: tl.constexpr,
    PRODUCT_IN_FLOAT32: tl.constexpr,
):
    """Program (i, s): rows of block i, the tiles of classes of split s."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < num_rows
    real_rows = tl.minimum(rows, num_rows - 1)
    lse = tl.load(coefficients_ptr + real_rows * 7)
    threshold = lse + log_h
    count = tl.zeros((ROWS,), dtype=tl.float32)
    surprisal_sum = tl.zeros((ROWS,), dtype=tl.float32)

    first_tile = tl.program_id(1) * tiles_per_split
    last_tile = tl.minimum(first_tile + tiles_per_split, tl.cdiv(num_classes, CLASSES))
    for tile in range(first_tile, last_tile):
        classes = tile * CLASSES + tl.arange(0, CLASSES)
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
        low = (logits < threshold[:, None]) & (classes < num_classes)[None, :]
        count += tl.sum(tl.where(low, 1.0, 0.0), axis=1)
        surprisal_sum += tl.sum(tl.where(low, lse[:, None] - logits, 0.0), axis=1)

    num_splits = tl.num_programs(1).to(tl.int64)
    plane = num_splits * num_rows
    place = partial_ptr + tl.program_id(1).to(tl.int64) * num_rows + rows
    tl.store(place, count, mask=inside)
    tl.store(place + plane, surprisal_sum, mask=inside)


@triton.jit(do_not_specialize=["num_rows", "num_splits"])
def add_tail_kernel(
    partial_ptr,  # float32[2, splits, N], of tail_kernel
    target_logit_ptr,  # float32[splits, N], of statistics_kernel
    loss_ptr,  # float32[N], added to
    coefficients_ptr,  # float32[N, 7], A, D and the target gradient added to
    num_rows,
    num_splits,
    h,
    ROWS: tl.constexpr,
):
    """Program i: block i of rows."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    place = coefficients_ptr + rows * 7
    # Neither ignored rows nor rows without a distribution.
    lse = tl.load(place, mask=rows < num_rows, other=float("inf"))
    finite = lse < float("inf")
    count = tl.zeros((ROWS,), dtype=tl.float32)
    surprisal_sum = tl.zeros((ROWS,), dtype=tl.float32)
    target_logit = tl.zeros((ROWS,), dtype=tl.float32)
    plane = tl.cast(num_splits, tl.int64) * num_rows
    for split in range(num_splits):
        own_rows = tl.cast(split, tl.int64) * num_rows + rows
        count += tl.load(partial_ptr + own_rows, mask=finite, other=0.0)
        surprisal_sum += tl.load(partial_ptr + plane + own_rows, mask=finite, other=0.0)
        target_logit += tl.load(target_logit_ptr + own_rows, mask=finite, other=0.0)
    p = tl.exp(target_logit - lse)
    change = h * count * p - tl.where(p < h, h, 0.0)
    tl.store(loss_ptr + rows, tl.load(loss_ptr + rows, mask=finite) + h * surprisal_sum, mask=finite)
    tl.store(place + 1, tl.load(place + 1, mask=finite) + h * count, mask=finite)
    tl.store(place + 5, tl.zeros_like(p) - h, mask=finite)
    tl.store(place + 6, tl.load(place + 6, mask=finite) + change, mask=finite)
