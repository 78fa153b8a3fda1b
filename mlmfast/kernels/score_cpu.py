"""impl "cpu" of linear_score: the head of the compiled core, which packs the weight as it passes."""

from __future__ import annotations

import torch
from torch import Tensor

from mlmfast.kernels.head import load_core
from mlmfast.kernels.rule_cpu import CORE_RULES, core_lacks, numpy_of, precision_of
from mlmfast.kernels.score_chunked import ScoreColumns, ScoreRequest, empty_columns


def can_run(input: Tensor, weight: Tensor, request: ScoreRequest) -> str | None:
    """None if it can, else why not."""
    for rule in request.rules:
        if rule.alpha != 2 or rule.smoothing > 0:
            return f"the core scores alpha 2 without smoothing, not {rule}"
    return core_lacks(input)


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
    of_rows = request.lse or request.entropy or request.topk > 0
    is_target = torch.ones(0)
    if of_rows:
        target_ids, target_offsets, is_target = with_a_target_each(target_ids, target_offsets)
    results = load_core().linear_score(
        input.float().numpy(),
        numpy_of(weight),
        None if bias is None else numpy_of(bias.float()),
        target_ids.to(torch.int32).numpy(),
        target_offsets.numpy(),
        [CORE_RULES[rule.family] for rule in request.rules],
        precision_of(input),
        "",
        torch.get_num_threads(),
        lse=request.lse,
        rank=request.rank,
        entropy=request.entropy,
        top_k=request.topk,
    )
    targets = is_target.nonzero().squeeze(1) if of_rows else slice(None)
    first = target_offsets[:-1]
    columns.scores.copy_(torch.from_numpy(results["scores"])[:, targets])
    if request.rank:
        columns.rank.copy_(torch.from_numpy(results["rank"])[targets])
    if request.lse:
        columns.lse.copy_(torch.from_numpy(results["lse"]))
    if request.entropy:
        columns.entropy.copy_(torch.from_numpy(results["entropy"])[first])
    if request.topk:
        columns.top_ids.copy_(torch.from_numpy(results["top_ids"])[first])
        columns.top_log_probs.copy_(torch.from_numpy(results["top_log_probs"])[first])
    return columns


def with_a_target_each(ids: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The targets with class 0 added to every row first, and which were there before: the core computes
    only rows that have targets."""
    counts = offsets.diff()
    more_offsets = offsets + torch.arange(len(offsets))
    is_target = torch.ones(len(ids) + len(counts), dtype=torch.bool)
    is_target[more_offsets[:-1]] = False
    more_ids = torch.zeros(len(is_target), dtype=ids.dtype)
    more_ids[is_target] = ids
    return more_ids, more_offsets, is_target
