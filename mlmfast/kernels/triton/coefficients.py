"""From a row's statistics to its loss and to the coefficients of its gradient.

Formulas: Shao et al. 2024 (arXiv:2405.18906), sections 2 and 3, at alpha 2, negated; written so that
nothing cancels as p_y -> 1. q = 1 - p_y; R is the sum of p_k^2 over k != y; h = smoothing / V.
"""

from __future__ import annotations

import triton
import triton.language as tl

from mlmfast.kernels.triton.reductions import log1p
from mlmfast.kernels.triton.statistics import merged_statistics


@triton.jit
def target_shares(maximum, rest, rest_of_squares, target_logit):
    """p, q and r, each to its own last digit."""
    total = 1.0 + rest
    relative = tl.exp(target_logit - maximum)
    is_greatest = target_logit == maximum
    q = tl.where(is_greatest, rest, total - relative) / total
    other_squares = tl.where(is_greatest, rest_of_squares, 1.0 + rest_of_squares - relative * relative)
    return relative / total, q, other_squares / (total * total)


@triton.jit(do_not_specialize=["num_rows", "num_splits", "num_classes", "ignore_index"])
def coefficient_kernel(
    partial_ptr,  # float32[5, splits, N], of statistics_kernel
    target_ptr,  # int64[N]
    loss_ptr,  # float32[N], written
    coefficients_ptr,  # float32[N, 7], written: lse, A, B, C, U, D, target gradient
    num_rows,
    num_splits,
    num_classes,
    ignore_index,
    smoothing,
    RULE: tl.constexpr,  # ScoringRule.family
    ROWS: tl.constexpr,
):
    """Program i: block i of rows. The masked-log term is added later (tail.add_tail_kernel)."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < num_rows
    maximum, rest, rest_of_squares, logit_sum, target_logit = merged_statistics(
        partial_ptr, rows, inside, num_rows, num_splits
    )
    # Logits with +inf, or nothing but -inf, have no distribution: m - m makes those rows NaN.
    rest += maximum - maximum
    log_total = log1p(rest)
    lse = maximum + log_total
    p, q, r = target_shares(maximum, rest, rest_of_squares, target_logit)

    h = smoothing / num_classes
    b = tl.zeros_like(lse)
    u = tl.zeros_like(lse)
    if RULE == "log":
        loss = (1.0 - smoothing) * ((maximum - target_logit) + log_total)
        if smoothing > 0.0:
            loss += smoothing * lse - h * logit_sum
        a = tl.zeros_like(lse) + 1.0
        u -= h
        target_gradient = (smoothing - h) - q
    elif RULE == "power":
        loss = p * p + r - 2.0 * (1.0 - smoothing) * p - 2.0 * h
        a = 2.0 * (p * q - r - smoothing * p)
        b += 2.0
        target_gradient = 2.0 * p * (smoothing * q - q * q - r)
    else:
        sum_of_squares = p * p + r
        norm = tl.sqrt(sum_of_squares)
        share = (1.0 - smoothing) * p + h
        loss = -share / norm
        a = -h / norm
        b = share / (norm * sum_of_squares)
        target_gradient = p / norm * ((h * (p * q - r) - (1.0 - smoothing) * r) / sum_of_squares)

    kept = tl.load(target_ptr + rows, mask=inside, other=0) != ignore_index
    place = coefficients_ptr + rows * 7
    tl.store(loss_ptr + rows, tl.where(kept, loss, 0.0), mask=inside)
    tl.store(place, tl.where(kept, lse, float("inf")), mask=inside)
    tl.store(place + 1, tl.where(kept, a, 0.0), mask=inside)
    tl.store(place + 2, tl.where(kept, b, 0.0), mask=inside)
    tl.store(place + 3, tl.zeros_like(lse), mask=inside)
    tl.store(place + 4, tl.where(kept, u, 0.0), mask=inside)
    tl.store(place + 5, tl.zeros_like(lse), mask=inside)
    tl.store(place + 6, tl.where(kept, target_gradient, 0.0), mask=inside)
