"""Ranks of targets, how many classes have a greater logit: a second sweep, once the targets' are known."""

from __future__ import annotations

import triton
import triton.language as tl

from mlmfast.kernels.triton.tiles import logit_tile


@triton.jit(do_not_specialize=["num_targets", "num_classes", "tiles_per_split"])
def rank_kernel(
    input_ptr,  # [N, D]
    weight_ptr,
    bias_ptr,
    row_of_target_ptr,  # int64[T]
    target_ids_ptr,  # int64[T]
    target_logit_ptr,  # float32[T], of target_sweep_kernel
    partial_ptr,  # int32[splits, T], written
    num_targets,
    num_classes,
    num_features,
    tiles_per_split,
    ROWS: tl.constexpr,
    CLASSES: tl.constexpr,
    FEATURES: tl.constexpr,
    PRODUCT_IN_FLOAT32: tl.constexpr,
):
    """Program (i, s): targets of block i, the tiles of classes of split s."""
    targets = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = targets < num_targets
    real_targets = tl.minimum(targets, num_targets - 1)
    rows = tl.load(row_of_target_ptr + real_targets)
    target = tl.load(target_ids_ptr + real_targets).to(tl.int32)
    target_logit = tl.load(target_logit_ptr + real_targets)
    count = tl.zeros((ROWS,), dtype=tl.int32)

    first_tile = tl.program_id(1) * tiles_per_split
    last_tile = tl.minimum(first_tile + tiles_per_split, tl.cdiv(num_classes, CLASSES))
    for tile in range(first_tile, last_tile):
        classes = tile * CLASSES + tl.arange(0, CLASSES)
        logits = logit_tile(
            input_ptr,
            weight_ptr,
            bias_ptr,
            rows,
            classes,
            num_classes,
            num_features,
            FEATURES,
            PRODUCT_IN_FLOAT32,
        )
        # A target never outranks itself, should its logit be rounded otherwise here.
        greater = (logits > target_logit[:, None]) & (classes[None, :] != target[:, None])
        count += tl.sum(greater.to(tl.int32), axis=1)

    tl.store(partial_ptr + tl.program_id(1).to(tl.int64) * num_targets + targets, count, mask=inside)
