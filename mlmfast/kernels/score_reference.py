"""impl "reference" of linear_score: plain torch on whole logits, what score_chunked is tested against."""

from __future__ import annotations

import torch
from torch import Tensor

from mlmfast.kernels.logit_tiles import compute_dtype
from mlmfast.kernels.rule_reference import rule_losses
from mlmfast.kernels.score_chunked import ScoreColumns, ScoreRequest, empty_columns


def can_run(input: Tensor, weight: Tensor, request: ScoreRequest) -> str | None:
    """It always can."""
    return None


def score(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target_ids: Tensor,
    target_offsets: Tensor,
    request: ScoreRequest,
) -> ScoreColumns:
    """See score_chunked.score."""
    dtype = compute_dtype(input.dtype)
    logits = torch.nn.functional.linear(
        input.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    )
    of_target = torch.repeat_interleave(logits, target_offsets.diff(), dim=0)  # [T, V]
    losses = [rule_losses(of_target, target_ids, rule, ignore_index=-1) for rule in request.rules]
    columns = empty_columns(input, len(target_ids), request)._replace(scores=-torch.stack(losses))
    if request.lse:
        columns = columns._replace(lse=torch.logsumexp(logits, dim=-1))
    if request.entropy:
        columns = columns._replace(entropy=torch.special.entr(logits.softmax(dim=-1)).sum(-1))
    if request.rank:
        ranks = (of_target > of_target.gather(1, target_ids[:, None])).sum(-1)
        columns = columns._replace(rank=ranks.masked_fill(columns.scores.isnan().any(0), -1))
    if request.topk:
        log_probs, ids = torch.log_softmax(logits, dim=-1).topk(request.topk, dim=-1)
        is_nan = logits.isnan().any(-1, keepdim=True)
        columns = columns._replace(top_ids=ids.masked_fill(is_nan, -1), top_log_probs=log_probs)
    return columns
