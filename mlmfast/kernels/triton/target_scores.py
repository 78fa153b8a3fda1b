"""Scores of any number of targets a row: one sweep for the sums over classes and the targets' logits.

The sums belong to rows and are taken once however many targets a row has. A target's logit is written by the
one program whose tiles hold its class, so that it has the very bits the sums were taken from: a product of
its own would round differently, and a target could seem more probable than certain.
"""

from __future__ import annotations

import triton
import triton.language as tl

from mlmfast.kernels.triton.coefficients import target_shares
from mlmfast.kernels.triton.reductions import log1p, with_split, with_tile
from mlmfast.kernels.triton.tiles import logit_tile

NO_CLASS = tl.constexpr((1 << 31) - 1)


@triton.jit
def class_of(key_ptr, target, rows, num_targets, num_classes):
    """int32[ROWS]: the class of each row's target; past the row's last one, no less than num_classes."""
    key = tl.load(key_ptr + target, mask=target < num_targets, other=1 << 62)
    return tl.minimum(key - rows * num_classes, NO_CLASS).to(tl.int32)


@triton.jit(do_not_specialize=["num_rows", "num_targets", "num_classes", "tiles_per_split"])
def target_sweep_kernel(
    input_ptr,
    weight_ptr,
    bias_ptr,
    key_ptr,  # int64[T]: row * V + class of every target, ascending
    first_target_ptr,  # int32[splits, N]: a row's first target that is not below the split's classes
    partial_ptr,  # float32[4, splits, N], written: maximum, rest, rest of squares, rest of gaps
    target_logit_ptr,  # float32[T], written
    num_targets,
    num_rows,
    num_classes,
    num_features,
    tiles_per_split,
    SQUARES: tl.constexpr,
    GAPS: tl.constexpr,
    ROWS: tl.constexpr,
    CLASSES: tl.constexpr,
    FEATURES: tl.constexpr,
    PRODUCT_IN_FLOAT32: tl.constexpr,
):
    """Program (i, s): rows of block i, the tiles of classes of split s, at least one."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < num_rows
    real_rows = tl.minimum(rows, num_rows - 1)
    place = tl.program_id(1).to(tl.int64) * num_rows + rows
    target = tl.load(first_target_ptr + place, mask=inside, other=num_targets)
    target_class = class_of(key_ptr, target, rows, num_targets, num_classes)
    maximum = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    rest = tl.zeros((ROWS,), dtype=tl.float32)
    rest_of_squares = tl.zeros((ROWS,), dtype=tl.float32)
    rest_of_gaps = tl.zeros((ROWS,), dtype=tl.float32)

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
        end_class = tl.minimum((tile + 1) * CLASSES, num_classes)
        while tl.min(target_class, axis=0) < end_class:
            found = target_class < end_class
            logit = tl.sum(tl.where(classes[None, :] == target_class[:, None], logits, 0.0), axis=1)
            tl.store(target_logit_ptr + target, logit, mask=found)
            target += found.to(tl.int32)
            target_class = class_of(key_ptr, target, rows, num_targets, num_classes)
        maximum, rest, rest_of_squares, rest_of_gaps = with_tile(
            maximum, rest, rest_of_squares, rest_of_gaps, logits, SQUARES, GAPS
        )

    plane = tl.num_programs(1).to(tl.int64) * num_rows
    tl.store(partial_ptr + place, maximum, mask=inside)
    tl.store(partial_ptr + plane + place, rest, mask=inside)
    tl.store(partial_ptr + 2 * plane + place, rest_of_squares, mask=inside)
    tl.store(partial_ptr + 3 * plane + place, rest_of_gaps, mask=inside)


@triton.jit(do_not_specialize=["num_rows", "num_splits"])
def row_kernel(
    partial_ptr,  # float32[4, splits, N], of target_sweep_kernel
    row_ptr,  # float32[3, N], written: maximum, rest, rest of squares
    lse_ptr,  # float32[N], written, or None
    entropy_ptr,  # float32[N], written, or None
    num_rows,
    num_splits,
    ROWS: tl.constexpr,
):
    """Program i: block i of rows. entropy = log(1 + rest) - rest of gaps / (1 + rest), a sum of positives."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < num_rows
    plane = tl.cast(num_splits, tl.int64) * num_rows
    maximum = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    rest = tl.zeros((ROWS,), dtype=tl.float32)
    rest_of_squares = tl.zeros((ROWS,), dtype=tl.float32)
    rest_of_gaps = tl.zeros((ROWS,), dtype=tl.float32)
    for split in range(num_splits):
        place = partial_ptr + tl.cast(split, tl.int64) * num_rows + rows
        maximum, rest, rest_of_squares, rest_of_gaps = with_split(
            *(maximum, rest, rest_of_squares, rest_of_gaps),
            tl.load(place, mask=inside, other=0.0),
            tl.load(place + plane, mask=inside, other=0.0),
            tl.load(place + 2 * plane, mask=inside, other=0.0),
            tl.load(place + 3 * plane, mask=inside, other=0.0),
            GAPS=True,
        )
    # Logits with +inf, or nothing but -inf, have no distribution: m - m makes those rows NaN.
    rest += maximum - maximum
    tl.store(row_ptr + rows, maximum, mask=inside)
    tl.store(row_ptr + num_rows + rows, rest, mask=inside)
    tl.store(row_ptr + 2 * tl.cast(num_rows, tl.int64) + rows, rest_of_squares, mask=inside)
    if lse_ptr is not None:
        tl.store(lse_ptr + rows, maximum + log1p(rest), mask=inside)
    if entropy_ptr is not None:
        tl.store(entropy_ptr + rows, log1p(rest) - rest_of_gaps / (1.0 + rest), mask=inside)


@triton.jit(do_not_specialize=["num_rows", "num_targets"])
def score_kernel(
    row_ptr,  # float32[3, N], of row_kernel
    target_logit_ptr,  # float32[T]
    row_of_target_ptr,  # int64[T]
    score_ptr,  # float32[T], written
    num_rows,
    num_targets,
    RULE: tl.constexpr,  # ScoringRule.family, at alpha 2 and without smoothing
    TARGETS: tl.constexpr,
):
    """Program i: block i of targets. Formulas: Shao et al. 2024 (arXiv:2405.18906), section 2."""
    targets = tl.program_id(0).to(tl.int64) * TARGETS + tl.arange(0, TARGETS)
    inside = targets < num_targets
    place = row_ptr + tl.load(row_of_target_ptr + targets, mask=inside, other=0)
    maximum = tl.load(place)
    rest = tl.load(place + num_rows)
    target_logit = tl.load(target_logit_ptr + targets, mask=inside, other=0.0)
    if RULE == "log":
        score = (target_logit - maximum) - log1p(rest)
    else:
        rest_of_squares = tl.load(place + 2 * tl.cast(num_rows, tl.int64))
        p, _, r = target_shares(maximum, rest, rest_of_squares, target_logit)
        score = 2.0 * p - (p * p + r) if RULE == "power" else p / tl.sqrt(p * p + r)
    tl.store(score_ptr + targets, score, mask=inside)
