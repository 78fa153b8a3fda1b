"""Losses and gradient coefficients of the scoring rules from a few sums over the classes.

With p the softmax of a row's logits, y its target, a = alpha and l = a - 1, the gradient of every rule is

    g_k = A p_k + B p_k^a + C p_k^l + U + D [p_k < smoothing/V]    for k != y.

The sums leave the most probable class out, so that nothing cancels where p_y is near 1: there 1 - p_y
is right down to the smallest number, and g_y, which the form above would round away, is given whole.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from mlmfast.kernels.rules import ScoringRule


class ClassSums(NamedTuple):
    """Over some or all of the logits z of each row, [N] each; fields a rule does not need are None."""

    top: Tensor
    """The largest logit; one class that has it is left out of the next three sums."""
    rest: Tensor
    """sum exp(z_k - top)"""
    rest_alpha: Tensor | None
    """sum exp(a (z_k - top))"""
    rest_low: Tensor | None
    """sum exp(l (z_k - top))"""
    total: Tensor | None
    """sum z_k, over all classes"""
    num_below: Tensor | None = None
    """How many p_k are below smoothing/V."""
    below_log_probs: Tensor | None = None
    """The sum of their log p_k."""

    def of(self, row: Tensor) -> ClassSums:
        """The sums of rows `row` int64[t], [t] each."""
        return ClassSums(self.top[row], self.rest[row], *(None if x is None else x[row] for x in self[2:]))


class Coefficients(NamedTuple):
    """The columns of the coefficients [N, 7], in their order."""

    lse: Tensor
    A: Tensor
    B: Tensor
    C: Tensor
    U: Tensor
    D: Tensor
    target_gradient: Tensor


def merged(one: ClassSums, other: ClassSums, rule: ScoringRule) -> ClassSums:
    """The sums over the classes of both, before those below a threshold are known."""
    top, lesser = torch.maximum(one.top, other.top), torch.minimum(one.top, other.top)
    shift = top.masked_fill(top == -torch.inf, 0)

    def rest(of_one: Tensor, of_other: Tensor, exponent: float) -> Tensor:
        scales = (torch.exp(exponent * (x - shift)) for x in (one.top, other.top, lesser))
        of_one_scale, of_other_scale, lesser_power = scales
        return of_one * of_one_scale + of_other * of_other_scale + lesser_power

    rest_alpha = rest_low = total = None
    if one.rest_alpha is not None and other.rest_alpha is not None:
        rest_alpha = rest(one.rest_alpha, other.rest_alpha, rule.alpha)
    if one.rest_low is not None and other.rest_low is not None:
        rest_low = rest(one.rest_low, other.rest_low, rule.alpha - 1)
    if one.total is not None and other.total is not None:
        total = one.total + other.total
    return ClassSums(top, rest(one.rest, other.rest, 1), rest_alpha, rest_low, total)


def log_sum_exp(top: Tensor, rest: Tensor) -> Tensor:
    return top + torch.log1p(rest)


def losses_and_coefficients(
    sums: ClassSums, target_logits: Tensor, ignored: Tensor, rule: ScoringRule, vocab_size: int
) -> tuple[Tensor, Tensor]:
    """target_logits [N], ignored bool[N] to losses [N] and coefficients [N, 7], in the sums' precision.

    Ignored rows have loss 0, lse +inf and the other coefficients 0, so that all their gradients are 0.
    """
    if rule.family == "log":
        losses, coefficients = log_rule(sums, target_logits, rule, vocab_size)
    else:
        losses, coefficients = power_rules(sums, target_logits, rule, vocab_size)
        if sums.num_below is not None and sums.below_log_probs is not None:
            losses, coefficients = with_masked_log(
                losses, coefficients, sums.num_below, sums.below_log_probs, target_logits, rule, vocab_size
            )
    columns = torch.stack(coefficients, dim=-1).masked_fill_(ignored[:, None], 0)
    columns[:, 0].masked_fill_(ignored, torch.inf)
    return losses.masked_fill(ignored, 0), columns


def target_probs(sums: ClassSums, gap: Tensor) -> tuple[Tensor, Tensor]:
    """p_y and 1 - p_y, each to its own last digit. gap [N]: the target's logit less the largest."""
    top_prob = 1 / (1 + sums.rest)
    prob = gap.exp() * top_prob
    return prob, torch.where(gap == 0, sums.rest * top_prob, 1 - prob)


def log_rule(
    sums: ClassSums, target_logits: Tensor, rule: ScoringRule, vocab_size: int
) -> tuple[Tensor, Coefficients]:
    gap = target_logits - sums.top
    log_normaliser = torch.log1p(sums.rest)  # less the largest logit
    losses = (1 - rule.smoothing) * (log_normaliser - gap)
    uniform = rule.smoothing / vocab_size
    lse = log_sum_exp(sums.top, sums.rest)
    if sums.total is not None:
        losses = losses + rule.smoothing * lse - uniform * sums.total
    one, zero = torch.ones_like(gap), torch.zeros_like(gap)
    target_gradient = rule.smoothing * (vocab_size - 1) / vocab_size - target_probs(sums, gap)[1]
    return losses, Coefficients(lse, one, zero, zero, one * -uniform, zero, target_gradient)


def power_rules(
    sums: ClassSums, target_logits: Tensor, rule: ScoringRule, vocab_size: int
) -> tuple[Tensor, Coefficients]:
    """Without the masked-log term."""
    assert sums.rest_alpha is not None
    assert sums.rest_low is not None
    alpha, low, smoothing = rule.alpha, rule.alpha - 1, rule.smoothing
    uniform = smoothing / vocab_size
    gap = target_logits - sums.top
    is_top = gap == 0
    top_log_prob = -torch.log1p(sums.rest)
    prob, complement = target_probs(sums, gap)
    prob_low = torch.exp(low * (gap + top_log_prob))
    top_alpha, top_low = torch.exp(alpha * top_log_prob), torch.exp(low * top_log_prob)
    sum_alpha, sum_low = top_alpha * (1 + sums.rest_alpha), top_low * (1 + sums.rest_low)
    # Sums over all classes but the target.
    others_alpha = torch.where(is_top, top_alpha * sums.rest_alpha, sum_alpha - prob * prob_low)
    others_low = torch.where(is_top, top_low * sums.rest_low, sum_low - prob_low)

    zero = torch.zeros_like(gap)
    if rule.family == "power":
        scale = alpha * low
        expected = (1 - smoothing) * prob_low + uniform * sum_low
        losses = low * sum_alpha - alpha * expected
        a = scale * (prob_low * complement - others_alpha - smoothing * prob_low + uniform * sum_low)
        b = zero + scale
        c = zero - scale * uniform
        target_gradient = scale * (
            smoothing * prob_low * complement
            + uniform * (prob * others_low - prob_low * complement)
            - prob_low * complement**2
            - prob * others_alpha
        )
    else:
        log_norm = (low / alpha) * torch.log1p(sums.rest_alpha)
        target_score = torch.exp(low * gap - log_norm)
        norm = torch.exp(low * top_log_prob + log_norm)
        expected = (1 - smoothing) * target_score + uniform * sum_low / norm
        losses = -expected
        a = zero
        b = low * expected / sum_alpha
        c = -low * uniform / norm
        target_gradient = (low / sum_alpha) * (
            uniform / norm * prob_low * (prob * others_low - others_alpha)
            - (1 - smoothing) * target_score * others_alpha
        )
    if alpha == 2:  # p^(alpha-1) is p
        a, c = a + c, zero
    lse = log_sum_exp(sums.top, sums.rest)
    return losses, Coefficients(lse, a, b, c, zero, zero, target_gradient)


def with_masked_log(
    losses: Tensor,
    coefficients: Coefficients,
    num_below: Tensor,
    below_log_probs: Tensor,
    target_logits: Tensor,
    rule: ScoringRule,
    vocab_size: int,
) -> tuple[Tensor, Coefficients]:
    uniform = rule.smoothing / vocab_size
    log_prob = target_logits - coefficients.lse
    is_below = target_logits < below_logit(coefficients.lse, rule, vocab_size)
    added = uniform * (num_below * log_prob.exp() - is_below.to(losses.dtype))
    return losses - uniform * below_log_probs, coefficients._replace(
        A=coefficients.A + uniform * num_below,
        D=coefficients.D - uniform,
        target_gradient=coefficients.target_gradient + added,
    )


def below_logit(lse: Tensor, rule: ScoringRule, vocab_size: int) -> Tensor:
    """The logit under which a class's probability is below smoothing/V."""
    return lse + math.log(rule.smoothing / vocab_size)
