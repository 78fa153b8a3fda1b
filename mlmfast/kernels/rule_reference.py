"""The scoring rules in plain torch on whole logits: what every kernel is tested against."""

from __future__ import annotations

import torch
from torch import Tensor

from mlmfast.kernels.rules import ScoringRule


def rule_losses(logits: Tensor, target: Tensor, rule: ScoringRule, ignore_index: int) -> Tensor:
    """The loss of every row, differentiable through the logits, in their precision.

    logits [N, V] float32 or float64; target int64[N]. Returns [N], 0 where target is ignore_index.
    Formulas: the scores of Shao et al. 2024 (arXiv:2405.18906) and their smoothing, negated.
    """
    ignored = target == ignore_index
    log_probs = torch.log_softmax(logits, dim=-1)
    target_log_probs = log_probs.gather(-1, target.masked_fill(ignored, 0)[:, None]).squeeze(-1)
    losses = smoothed_losses(log_probs, target_log_probs, rule)
    if rule.has_masked_log:
        losses = losses + masked_log_term(log_probs, rule.smoothing / logits.shape[-1])
    return losses.masked_fill(ignored, 0)


def smoothed_losses(log_probs: Tensor, target_log_probs: Tensor, rule: ScoringRule) -> Tensor:
    """log_probs [N, V], target_log_probs [N] to the losses [N] without the masked-log term."""
    share, uniform = 1 - rule.smoothing, rule.smoothing / log_probs.shape[-1]
    if rule.name == "log":
        losses = -share * target_log_probs
        return losses - uniform * log_probs.sum(-1) if uniform else losses
    low = rule.alpha - 1
    log_sum = torch.logsumexp(rule.alpha * log_probs, dim=-1)
    # Of power the score is low * sum p^alpha; pseudospherical is divided by (sum p^alpha)^(low/alpha).
    log_norm = log_sum * (low / rule.alpha) if rule.family == "pseudospherical" else torch.zeros_like(log_sum)
    expected = share * torch.exp(low * target_log_probs - log_norm)
    if uniform:
        expected = expected + uniform * torch.exp(torch.logsumexp(low * log_probs, dim=-1) - log_norm)
    if rule.family == "pseudospherical":
        return -expected
    return low * torch.exp(log_sum) - rule.alpha * expected


def masked_log_term(log_probs: Tensor, threshold: float) -> Tensor:
    """`-threshold * sum log p_j` over the classes with p_j below it: [N, V] to [N]. The choice of
    classes carries no gradient."""
    is_low = log_probs.detach().exp() < threshold
    return -threshold * torch.where(is_low, log_probs, 0).sum(-1)
