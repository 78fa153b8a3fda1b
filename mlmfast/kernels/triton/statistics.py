"""The first sweep of the loss: what it needs to know of a row's logits, in one pass over the vocabulary.

The statistics are the maximum, the rest and the rest of squares (see reductions), the sum of the logits, and
the target's logit.
"""

from __future__ import annotations

import triton
import triton.language as tl

from mlmfast.kernels.triton.reductions import with_split, with_tile
from mlmfast.kernels.triton.tiles import logit_tile


@triton.jit(do_not_specialize=["num_rows", "num_classes", "tiles_per_split"])
def statistics_kernel(
    input_ptr,
    weight_ptr,
    bias_ptr,
    target_ptr,  # int64[N]
    partial_ptr,  # float32[5, splits, N], written: maximum, rest, rest of squares, logit sum, target logit
    num_rows,
    num_classes,
    num_features,
    tiles_per_split,
    SUM_LOGITS: tl.constexpr,
    ROWS: tl.constexpr,
    CLASSES: tl.constexpr,
    FEATURES: tl.constexpr,
    PRODUCT_IN_FLOAT32: tl.constexpr,
):
    """Program (i, s): rows of block i, the tiles of classes of split s, at least one."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    real_rows = tl.minimum(rows, num_rows - 1)
    target = tl.load(target_ptr + real_rows).to(tl.int32)
    maximum = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    rest = tl.zeros((ROWS,), dtype=tl.float32)
    rest_of_squares = tl.zeros((ROWS,), dtype=tl.float32)
    logit_sum = tl.zeros((ROWS,), dtype=tl.float32)
    target_logit = tl.zeros((ROWS,), dtype=tl.float32)

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
        maximum, rest, rest_of_squares, _ = with_tile(
            maximum, rest, rest_of_squares, 0.0, logits, SQUARES=True, GAPS=False
        )
        if SUM_LOGITS:
            logit_sum += tl.sum(tl.where((classes < num_classes)[None, :], logits, 0.0), axis=1)
        target_logit += tl.sum(tl.where(classes[None, :] == target[:, None], logits, 0.0), axis=1)

    num_splits = tl.num_programs(1).to(tl.int64)
    plane = num_splits * num_rows
    place = partial_ptr + tl.program_id(1).to(tl.int64) * num_rows + rows
    inside = rows < num_rows
    tl.store(place, maximum, mask=inside)
    tl.store(place + plane, rest, mask=inside)
    tl.store(place + 2 * plane, rest_of_squares, mask=inside)
    tl.store(place + 3 * plane, logit_sum, mask=inside)
    tl.store(place + 4 * plane, target_logit, mask=inside)


@triton.jit
def merged_statistics(partial_ptr, rows, inside, num_rows, num_splits):
    """The five statistics of whole rows, float32[ROWS] each, from those of their splits."""
    plane = tl.cast(num_splits, tl.int64) * num_rows
    maximum = tl.full(rows.shape, float("-inf"), dtype=tl.float32)
    rest = tl.zeros(rows.shape, dtype=tl.float32)
    rest_of_squares = tl.zeros(rows.shape, dtype=tl.float32)
    logit_sum = tl.zeros(rows.shape, dtype=tl.float32)
    target_logit = tl.zeros(rows.shape, dtype=tl.float32)
    for split in range(num_splits):
        place = partial_ptr + tl.cast(split, tl.int64) * num_rows + rows
        split_maximum = tl.load(place, mask=inside, other=0.0)
        split_rest = tl.load(place + plane, mask=inside, other=0.0)
        split_squares = tl.load(place + 2 * plane, mask=inside, other=0.0)
        logit_sum += tl.load(place + 3 * plane, mask=inside, other=0.0)
        target_logit += tl.load(place + 4 * plane, mask=inside, other=0.0)
        maximum, rest, rest_of_squares, _ = with_split(
            *(maximum, rest, rest_of_squares, 0.0, split_maximum, split_rest, split_squares, 0.0), GAPS=False
        )
    return maximum, rest, rest_of_squares, logit_sum, target_logit
