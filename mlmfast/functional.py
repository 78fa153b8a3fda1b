"""Losses from strictly proper scoring rules, in the manner of torch.nn.functional.

Rules, with p the softmax of V logits, y the target and a = alpha; each loss is the negative score:

    log               -log p_y
    brier             sum p^2 - 2 p_y
    spherical         -p_y / ||p||_2
    power             (a-1) sum p^a - a p_y^(a-1)
    pseudospherical   -p_y^(a-1) / (sum p^a)^((a-1)/a)

smoothing e puts 1-e of the weight on y's score and e/V on every class's; the masked-log term
`-e/V * sum log p_j` over the classes with p_j < e/V keeps a gradient where the other rules have none
(Shao et al. 2024, Language Generation with Strictly Proper Scoring Rules, arXiv:2405.18906).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mlmfast.errors import SettingsError
from mlmfast.extras import require

try:
    import torch
except ImportError:
    require("torch", extra="torch", purpose="mlmfast.functional")
    raise
from torch import Tensor

from mlmfast.kernels.impl_choice import check_impl
from mlmfast.kernels.linear_inputs import checked_targets, described, linear_inputs, reference_logits
from mlmfast.kernels.logit_tiles import compute_dtype
from mlmfast.kernels.rule_operators import linear_scoring_rule
from mlmfast.kernels.rule_reference import rule_losses
from mlmfast.kernels.rules import ScoringRule
from mlmfast.kernels.score_chunked import ScoreRequest
from mlmfast.kernels.score_operators import score_columns

__all__ = ["LinearScores", "ScoringRule", "linear_score", "linear_scoring_rule_loss", "scoring_rule_loss"]

REDUCTIONS = ("mean", "sum", "none")


def scoring_rule_loss(
    logits: Tensor,
    target: Tensor,
    *,
    rule: str = "log",
    alpha: float = 2.0,
    smoothing: float = 0.0,
    masked_log: bool = True,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Tensor:
    """The loss of logits [..., V] at integer targets [...], by plain torch; see the module for the rules.

    Computed in float32, or float64 for such logits. reduction: `mean` over the targets that are not
    ignore_index (NaN when there are none, as torch's cross_entropy), `sum` (0 when there are none), or
    `none`: the shape of target, 0 where ignored. alpha is for `power` and `pseudospherical`.

    Raises SettingsError for settings, shapes, types or targets that do not fit.
    """
    settings = ScoringRule(rule, alpha, smoothing, masked_log)
    check_reduction(reduction)
    if logits.ndim < 2 or logits.shape[-1] < 1 or not logits.is_floating_point():
        raise SettingsError(f"logits: expected floating-point [..., V], got {described(logits)}")
    check_target_shape(target, logits.shape[:-1], "logits")
    ids = checked_targets("target", target, logits.shape[-1], ignore_index).flatten()
    rows = logits.flatten(0, -2)
    losses = rule_losses(rows.to(compute_dtype(rows.dtype)), ids, settings, ignore_index)
    return reduce_losses(losses, target, reduction, ignore_index)


def linear_scoring_rule_loss(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    rule: str = "log",
    alpha: float = 2.0,
    smoothing: float = 0.0,
    masked_log: bool = True,
    rows: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    impl: str = "auto",
) -> Tensor:
    """scoring_rule_loss of the logits `input @ linear_weight.T + linear_bias`, which are never whole.

    input [..., D], linear_weight [V, D] of one floating-point type, linear_bias [V] of that or float32,
    target [...]. rows int64[M] picks rows of the flattened input before the product; target is then [M].
    Sums are in float32, and so is the loss (float64 for float64); under torch.autocast input and weight
    are cast to its precision. Differentiable once, in reverse mode, through input, linear_weight and
    linear_bias.

    impl: `torch` (any device and alpha up to 6, logits by chunks of rows), `cpu` (the compiled core),
    `triton` or `cuda` (a GPU), `reference` (plain torch on whole logits), or `auto`: the fastest that
    can run, logged once at level debug. One that cannot run raises. On a CPU with bfloat16 units `cpu`
    makes a float32 product of three bfloat16 ones, which count 16 bits of each factor: losses were off by
    up to 4e-6 of the largest logit (1e-4 at 30). `torch` multiplies in float32.

    Raises SettingsError for settings, shapes, types or targets that do not fit.
    """
    settings = ScoringRule(rule, alpha, smoothing, masked_log)
    check_reduction(reduction)
    check_impl(impl)
    hidden, weight, bias = linear_inputs(input, linear_weight, linear_bias, rows)
    check_target_shape(target, input.shape[:-1] if rows is None else rows.shape, "input or rows")
    ids = checked_targets("target", target, weight.shape[0], ignore_index).flatten()
    if impl == "reference":
        losses = rule_losses(reference_logits(hidden, weight, bias), ids, settings, ignore_index)
    else:
        losses, _ = linear_scoring_rule(
            hidden, weight, bias, ids, ignore_index, rule, alpha, smoothing, masked_log, impl
        )
    return reduce_losses(losses, target, reduction, ignore_index)


class LinearScores(NamedTuple):
    """What linear_score gives, natural logs; a field that was not asked for is None."""

    scores: Tensor
    """[R, *targets]: of each rule asked for, in order; the negative loss, so higher is better."""
    lse: Tensor | None
    """[...]: the log-sum-exp of each row's logits."""
    entropy: Tensor | None
    """[...]: of each row's softmax, in nats."""
    rank: Tensor | None
    """int64[*targets]: how many classes have a larger logit, 0 for the best; -1 where the score is NaN."""
    top_ids: Tensor | None
    """int64[..., topk]: the most probable classes, best first; -1 where logits are NaN."""
    top_log_probs: Tensor | None
    """[..., topk]"""


def linear_score(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor | tuple[Tensor, Tensor],
    *,
    linear_bias: Tensor | None = None,
    rows: Tensor | None = None,
    rules: Sequence[str | ScoringRule] = ("log",),
    return_lse: bool = False,
    return_entropy: bool = False,
    return_rank: bool = False,
    topk: int = 0,
    impl: str = "auto",
) -> LinearScores:
    """Scores of targets under the softmax of `input @ linear_weight.T + linear_bias`, never whole.

    input [..., D], linear_weight [V, D], linear_bias [V], rows int64[M] and impl as in
    linear_scoring_rule_loss. target: one class per row [...], several [..., K], or ragged: (ids int64[T],
    offsets int64[N+1]), where row r owns ids[offsets[r]:offsets[r+1]], none or several. rules: names, or
    ScoringRules for other alphas and smoothing; the score of `log` is the log-probability. `cuda` has no
    such kernel, `triton` no topk. Not differentiable: see linear_scoring_rule_loss.

    Raises SettingsError for settings, shapes, types or targets that do not fit.
    """
    settings = tuple(rule if isinstance(rule, ScoringRule) else ScoringRule(rule) for rule in rules)
    if not settings:
        raise SettingsError("rules: expected at least one")
    check_impl(impl)
    hidden, weight, bias = linear_inputs(input.detach(), linear_weight.detach(), linear_bias, rows)
    vocab_size, shape = weight.shape[0], input.shape[:-1] if rows is None else rows.shape
    if not 0 <= topk <= vocab_size:
        raise SettingsError(f"topk: expected 0 to {vocab_size} (the vocabulary), got {topk}")
    ids, offsets = target if isinstance(target, tuple) else (target, per_row_offsets(target, shape))
    columns = score_columns(
        hidden,
        weight,
        bias if bias is None else bias.detach(),
        checked_targets("target", ids, vocab_size, None).flatten(),
        offsets,
        ScoreRequest(settings, return_lse, return_entropy, return_rank, topk),
        impl,
    )
    return LinearScores(
        scores=columns.scores.reshape(len(settings), *ids.shape),
        lse=columns.lse.reshape(shape) if return_lse else None,
        entropy=columns.entropy.reshape(shape) if return_entropy else None,
        rank=columns.rank.reshape(ids.shape) if return_rank else None,
        top_ids=columns.top_ids.reshape(*shape, topk) if topk else None,
        top_log_probs=columns.top_log_probs.reshape(*shape, topk) if topk else None,
    )


def check_reduction(reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise SettingsError(f"reduction: expected one of {', '.join(REDUCTIONS)}, got {reduction!r}")


def check_target_shape(target: Tensor, shape: torch.Size, source: str) -> None:
    if target.shape != shape:
        raise SettingsError(f"target: expected {list(shape)}, as of {source}, got {described(target)}")


def per_row_offsets(target: Tensor, shape: torch.Size) -> Tensor:
    """target [...] or [..., K] of rows [...] to the offsets int64[N+1] of its rows' targets."""
    if target.shape[: len(shape)] != shape or target.ndim > len(shape) + 1:
        raise SettingsError(f"target: expected {list(shape)} or {[*shape, 'K']}, got {described(target)}")
    num_targets = target.shape[-1] if target.ndim > len(shape) else 1
    return torch.arange(shape.numel() + 1, device=target.device) * num_targets


def reduce_losses(losses: Tensor, target: Tensor, reduction: str, ignore_index: int) -> Tensor:
    """losses [N] of the flattened target, 0 where ignored."""
    if reduction == "none":
        return losses.reshape(target.shape)
    if reduction == "sum":
        return losses.sum()
    return losses.sum() / (target != ignore_index).sum()
