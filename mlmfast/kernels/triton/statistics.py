"""The first sweep: what a scoring rule needs to know of a row's logits, in one pass over the vocabulary.

With m the greatest logit of a row and e_k = exp(z_k - m), the statistics are m, the sum of e_k and of e_k^2
over every class but one that reaches m, the sum of z_k, and z_y. The class that reaches m would add exactly
1 to both sums: it is left out rather than subtracted later, so that 1 - p_y keeps its digits as p_y -> 1.
"""

from __future__ import annotations

import triton
import triton.language as tl

from mlmfast.kernels.triton.tiles import logit_tile


@triton.jit
def finite_base(maximum):
    """What logits are compared with: the maximum, or where they are all -inf so far, something above it."""
    return tl.maximum(maximum, -3.0e38)


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
        new_maximum = tl.maximum(maximum, tl.max(logits, axis=1))
        base = finite_base(new_maximum)
        at_maximum = logits == base[:, None]
        relative = tl.where(at_maximum, 0.0, tl.exp(logits - base[:, None]))
        # The class left out so far, if the maximum grew; then one of those that reach the new one is.
        left_out = tl.where(new_maximum > maximum, 1.0, 0.0)
        ties = tl.sum(tl.where(at_maximum, 1.0, 0.0), axis=1) - left_out
        shrink = tl.exp(maximum - base)
        rest = (rest + left_out) * shrink + tl.sum(relative, axis=1) + ties
        rest_of_squares = (
            (rest_of_squares + left_out) * shrink * shrink + tl.sum(relative * relative, axis=1) + ties
        )
        maximum = new_maximum
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
        # The side with the lower maximum gives up the class it left out.
        grew = split_maximum > maximum
        new_maximum = tl.maximum(maximum, split_maximum)
        shrink = tl.exp(tl.minimum(maximum, split_maximum) - finite_base(new_maximum))
        lower = tl.where(grew, rest, split_rest) + 1.0
        lower_squares = tl.where(grew, rest_of_squares, split_squares) + 1.0
        rest = tl.where(grew, split_rest, rest) + lower * shrink
        rest_of_squares = tl.where(grew, split_squares, rest_of_squares) + lower_squares * shrink * shrink
        maximum = new_maximum
    return maximum, rest, rest_of_squares, logit_sum, target_logit
