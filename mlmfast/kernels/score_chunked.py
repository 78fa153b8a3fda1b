"""impl "torch" of linear_score: scores of several targets a row, logits a chunk of rows at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlmfast.kernels.logit_tiles import (
    LIVE_TILES,
    compute_dtype,
    float32_product,
    has_float32_product,
    slices,
)
from mlmfast.kernels.rule_chunked import class_sums, needs_float64, tile_of, with_classes_below
from mlmfast.kernels.rule_closed_form import below_logit, log_sum_exp, losses_and_coefficients
from mlmfast.kernels.rules import ScoringRule

CHUNK_BYTES, CUDA_CHUNK_BYTES = 1 << 26, 1 << 28
"""Memory the logits of a chunk of rows and what is computed from them may take (one row at least); on a GPU
more, as each chunk reads the weight and waits for its launches,"""
BLOCK_BYTES = 1 << 20
"""and a block of a low-precision weight raised to float32."""


@dataclass(frozen=True)
class ScoreRequest:
    """What is asked of every row and target."""

    rules: tuple[ScoringRule, ...]
    lse: bool = False
    entropy: bool = False
    rank: bool = False
    topk: int = 0


class ScoreColumns(NamedTuple):
    """N rows, T targets, R rules; a column that is not asked for is empty, [0]."""

    scores: Tensor
    """[R, T]"""
    lse: Tensor
    """[N]"""
    entropy: Tensor
    """[N]"""
    rank: Tensor
    """int64[T]: how many classes have a larger logit; -1 where the score is NaN."""
    top_ids: Tensor
    """int64[N, topk]: the most probable classes; -1 where the logits hold NaN."""
    top_log_probs: Tensor
    """[N, topk]"""


def empty_columns(input: Tensor, num_targets: int, request: ScoreRequest) -> ScoreColumns:
    dtype, num_rows = compute_dtype(input.dtype), input.shape[0]
    return ScoreColumns(
        scores=input.new_empty((len(request.rules), num_targets), dtype=dtype),
        lse=input.new_empty(num_rows if request.lse else 0, dtype=dtype),
        entropy=input.new_empty(num_rows if request.entropy else 0, dtype=dtype),
        rank=input.new_empty(num_targets if request.rank else 0, dtype=torch.int64),
        top_ids=input.new_empty((num_rows, request.topk) if request.topk else 0, dtype=torch.int64),
        top_log_probs=input.new_empty((num_rows, request.topk) if request.topk else 0, dtype=dtype),
    )


def can_run(input: Tensor, weight: Tensor, request: ScoreRequest) -> str | None:
    """None if it can, else why not."""
    return next(filter(None, (needs_float64(input, rule) for rule in request.rules)), None)


def score(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target_ids: Tensor,
    target_offsets: Tensor,
    request: ScoreRequest,
    offsets_on_host: NDArray[np.int64] | None = None,
) -> ScoreColumns:
    """input [N, D], weight [V, D], bias [V]; row r owns the targets target_offsets[r] to
    target_offsets[r+1] of target_ids int64[T]; target_offsets int64[N+1].

    offsets_on_host: the same on the host; without them it waits for the device once, to read them."""
    columns = empty_columns(input, len(target_ids), request)
    dtype = compute_dtype(input.dtype)
    chunk_bytes = CUDA_CHUNK_BYTES if input.is_cuda else CHUNK_BYTES
    chunk = max(1, chunk_bytes // (LIVE_TILES * len(weight) * dtype.itemsize))
    chunks = list(slices(len(input), chunk))
    host_offsets = target_offsets if offsets_on_host is None else offsets_on_host
    bounds = host_offsets[[0, *(rows.stop for rows in chunks)]].tolist()
    for rows, start, stop in zip(chunks, bounds, bounds[1:], strict=False):
        logits = chunk_logits(input[rows], weight, bias)
        counts = target_offsets[rows.start : rows.stop + 1].diff()
        row_of_target = torch.repeat_interleave(counts, output_size=stop - start)
        score_rows(logits, rows, columns, request)
        score_targets(logits, row_of_target, target_ids[start:stop], slice(start, stop), columns, request)
    return columns


def chunk_logits(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """hidden [chunk, D] to logits [chunk, V], in at least float32."""
    vocab_size, num_features = weight.shape
    dtype = compute_dtype(hidden.dtype)
    if hidden.dtype == weight.dtype != dtype and has_float32_product(hidden):
        logits = float32_product(hidden, weight.T)
        return logits if bias is None else logits.add_(bias)
    hidden = hidden.to(dtype)
    if weight.dtype == hidden.dtype:
        return tile_of(hidden, weight, bias, slice(0, vocab_size))
    logits = hidden.new_empty(len(hidden), vocab_size)
    for classes in slices(vocab_size, max(1, BLOCK_BYTES // (num_features * hidden.dtype.itemsize))):
        logits[:, classes] = tile_of(hidden, weight, bias, classes)
    return logits


def score_rows(logits: Tensor, rows: slice, columns: ScoreColumns, request: ScoreRequest) -> None:
    """Fills the columns of the rows whose logits [chunk, V] these are."""
    if not (request.lse or request.entropy or request.topk):
        return
    top, top_index = logits.max(dim=-1, keepdim=True)
    above = torch.log1p((logits - top).exp_().scatter_(1, top_index, 0).sum(-1, keepdim=True))
    if request.lse:
        columns.lse[rows] = (top + above).squeeze(1)
    if request.entropy:
        log_probs = (logits - top).sub_(above).clamp_(min=torch.finfo(logits.dtype).min)
        columns.entropy[rows] = -(log_probs.exp() * log_probs).sum(-1)
    if request.topk:
        values, ids = logits.topk(request.topk, dim=-1)
        columns.top_ids[rows] = ids.masked_fill_(above.isnan(), -1)
        columns.top_log_probs[rows] = (values - top).sub_(above)


def score_targets(
    logits: Tensor, row: Tensor, ids: Tensor, targets: slice, columns: ScoreColumns, request: ScoreRequest
) -> None:
    """Fills the columns of the targets `ids` [t], of rows `row` [t] of logits [chunk, V]."""
    target_logits = logits[row, ids]
    none_ignored = torch.zeros_like(ids, dtype=torch.bool)
    for index, rule in enumerate(request.rules):
        sums = class_sums(logits, rule)
        if rule.has_masked_log:
            lse = log_sum_exp(sums.top, sums.rest)
            sums = with_classes_below(sums, logits, lse, below_logit(lse, rule, logits.shape[1]))
        losses, _ = losses_and_coefficients(sums.of(row), target_logits, none_ignored, rule, logits.shape[1])
        columns.scores[index, targets] = -losses
    if request.rank:
        ranks = columns.rank[targets]
        for part in slices(len(ids), len(logits)):
            ranks[part] = (logits[row[part]] > target_logits[part, None]).sum(-1)
        ranks.masked_fill_(columns.scores[:, targets].isnan().any(0), -1)
