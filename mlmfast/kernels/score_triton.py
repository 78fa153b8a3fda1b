"""impl "triton" of linear_score: log, and power and pseudospherical at alpha 2, without smoothing.

A sweep of the vocabulary keeps tiles of logits in registers; ranks take a second one, over targets.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlmfast.kernels.rule_triton import triton_lacks
from mlmfast.kernels.score_chunked import ScoreColumns, ScoreRequest, empty_columns
from mlmfast.kernels.triton.launch import MERGED_ROWS, Sweep, divide_up, on_device_of


def can_run(input: Tensor, weight: Tensor, request: ScoreRequest) -> str | None:
    """None if it can, else why not, in one clause."""
    for rule in request.rules:
        if rule.alpha != 2 or rule.smoothing > 0:
            return f"it scores alpha 2 without smoothing, not {rule}"
    if request.topk:
        return "it has no top-k"
    return triton_lacks(input, weight)


def score(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target_ids: Tensor,
    target_offsets: Tensor,
    request: ScoreRequest,
) -> ScoreColumns:
    """As score_chunked.score."""
    columns = empty_columns(input, len(target_ids), request)
    if len(input) == 0:
        return columns
    row_of_target = torch.repeat_interleave(target_offsets.diff(), output_size=len(target_ids))
    keys = row_of_target * len(weight) + target_ids
    # The keys of a row are together, sorted or not: row_of_target stays.
    keys, order = keys.sort()
    in_order = columns._replace(scores=torch.empty_like(columns.scores), rank=torch.empty_like(columns.rank))
    score_sorted(input, weight, bias, keys, row_of_target, target_ids[order], in_order, request)
    columns.scores[:, order] = in_order.scores
    if request.rank:
        columns.rank[order] = in_order.rank
    return columns


def score_sorted(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    keys: Tensor,
    row_of_target: Tensor,
    target_ids: Tensor,
    columns: ScoreColumns,
    request: ScoreRequest,
) -> None:
    """Fills the columns of targets in the order of their keys int64[T] = row * V + class."""
    from mlmfast.kernels.triton.target_scores import row_kernel, score_kernel, target_sweep_kernel

    sweep = Sweep.of(input, weight)
    num_targets = len(target_ids)
    partial = input.new_empty((4, sweep.num_splits, sweep.num_rows), dtype=torch.float32)
    row_statistics = input.new_empty((3, sweep.num_rows), dtype=torch.float32)
    target_logits = input.new_empty(num_targets, dtype=torch.float32)
    with on_device_of(input):
        target_sweep_kernel[sweep.grid](
            *(input, weight, bias, keys, first_targets(keys, sweep), partial, target_logits),
            *(num_targets, *sweep.sizes, sweep.tiles_per_split),
            SQUARES=any(rule.family != "log" for rule in request.rules),
            GAPS=request.entropy,
            num_warps=sweep.tile.statistics_warps,
            **sweep.constants,
        )
        row_kernel[sweep.merging_grid](
            *(partial, row_statistics),
            columns.lse if request.lse else None,
            columns.entropy if request.entropy else None,
            *(sweep.num_rows, sweep.num_splits),
            ROWS=MERGED_ROWS,
        )
        if num_targets == 0:
            return
        for rule, scores in zip(request.rules, columns.scores, strict=True):
            score_kernel[divide_up(num_targets, MERGED_ROWS),](
                *(row_statistics, target_logits, row_of_target, scores, sweep.num_rows, num_targets),
                RULE=rule.family,
                TARGETS=MERGED_ROWS,
            )
    if request.rank:
        columns.rank.copy_(ranks(input, weight, bias, row_of_target, target_ids, target_logits))
        columns.rank.masked_fill_(columns.scores.isnan().any(0), -1)


def first_targets(keys: Tensor, sweep: Sweep) -> Tensor:
    """The first target of every row that is of a split or of a later one, int32[splits, N]."""
    rows = torch.arange(sweep.num_rows, device=keys.device)
    splits = torch.arange(sweep.num_splits, device=keys.device)
    classes = splits * (sweep.tiles_per_split * sweep.tile.classes)
    return torch.searchsorted(keys, rows * sweep.num_classes + classes[:, None], out_int32=True)


def ranks(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    row_of_target: Tensor,
    target_ids: Tensor,
    target_logits: Tensor,
) -> Tensor:
    """int64[T]: how many classes have a logit greater than the target's."""
    from mlmfast.kernels.triton.rank import rank_kernel

    sweep = Sweep.of(input, weight, len(target_ids))
    partial = input.new_empty((sweep.num_splits, len(target_ids)), dtype=torch.int32)
    with on_device_of(input):
        rank_kernel[sweep.grid](
            *(input, weight, bias, row_of_target, target_ids, target_logits, partial),
            *(*sweep.sizes, sweep.tiles_per_split),
            num_warps=sweep.tile.num_warps,
            **sweep.constants,
        )
    return partial.sum(dim=0)
