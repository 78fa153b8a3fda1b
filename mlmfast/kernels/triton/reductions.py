"""Sums over the classes of a row, taken tile by tile with online rescaling.

With m the greatest logit so far and e_k = exp(z_k - m), the sums are of e_k, of e_k^2 and of e_k (z_k - m),
over every class but one that reaches m. That class would add exactly 1, 1 and 0: it is left out rather than
subtracted later, so that 1 - p_y keeps its digits as p_y -> 1.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def finite_base(maximum):
    """What logits are compared with: the maximum, or where they are all -inf so far, something above it."""
    return tl.maximum(maximum, -3.0e38)


@triton.jit
def log1p(x):
    """log(1 + x) for x >= 0: Kahan's correction of the rounding of 1 + x."""
    rounded = 1.0 + x
    return tl.where(rounded == 1.0, x, tl.log(rounded) * (x / tl.where(rounded == 1.0, 1.0, rounded - 1.0)))


@triton.jit
def with_tile(
    maximum,
    rest,
    rest_of_squares,
    rest_of_gaps,
    logits,  # float32[ROWS, CLASSES]
    SQUARES: tl.constexpr,
    GAPS: tl.constexpr,
):
    """The maximum and the three sums, float32[ROWS] each, with those of a tile; sums not wanted stay."""
    new_maximum = tl.maximum(maximum, tl.max(logits, axis=1))
    base = finite_base(new_maximum)
    at_maximum = logits == base[:, None]
    relative = tl.where(at_maximum, 0.0, tl.exp(logits - base[:, None]))
    # The class left out so far, if the maximum grew; then one of those that reach the new one is.
    left_out = tl.where(new_maximum > maximum, 1.0, 0.0)
    ties = tl.sum(tl.where(at_maximum, 1.0, 0.0), axis=1) - left_out
    shrink = tl.exp(maximum - base)
    if GAPS:
        gaps = tl.maximum(logits - base[:, None], -1000.0)  # relative is 0 there, and 0 * -inf is not
        rest_of_gaps = shrunk_gaps(rest_of_gaps, rest + left_out, maximum - base, shrink)
        rest_of_gaps += tl.sum(relative * gaps, axis=1)
    rest = (rest + left_out) * shrink + tl.sum(relative, axis=1) + ties
    if SQUARES:
        rest_of_squares = (
            (rest_of_squares + left_out) * shrink * shrink + tl.sum(relative * relative, axis=1) + ties
        )
    return new_maximum, rest, rest_of_squares, rest_of_gaps


@triton.jit
def shrunk_gaps(sum_of_gaps, total, fall, shrink):
    """sum e_k (z_k - m) over classes with sum e_k = total, as m rises by -fall and shrink = exp(fall)."""
    return (sum_of_gaps + total * tl.where(shrink > 0.0, fall, 0.0)) * shrink


@triton.jit
def with_split(
    maximum,
    rest,
    rest_of_squares,
    rest_of_gaps,
    split_maximum,
    split_rest,
    split_squares,
    split_gaps,
    GAPS: tl.constexpr,
):
    """The maximum and the three sums with those of other classes of the same rows."""
    # The side with the lower maximum gives up the class it left out.
    grew = split_maximum > maximum
    new_maximum = tl.maximum(maximum, split_maximum)
    fall = tl.minimum(maximum, split_maximum) - finite_base(new_maximum)
    shrink = tl.exp(fall)
    lower = tl.where(grew, rest, split_rest) + 1.0
    lower_squares = tl.where(grew, rest_of_squares, split_squares) + 1.0
    if GAPS:
        lower_gaps = tl.where(grew, rest_of_gaps, split_gaps)
        rest_of_gaps = tl.where(grew, split_gaps, rest_of_gaps) + shrunk_gaps(lower_gaps, lower, fall, shrink)
    rest = tl.where(grew, split_rest, rest) + lower * shrink
    rest_of_squares = tl.where(grew, split_squares, rest_of_squares) + lower_squares * shrink * shrink
    return new_maximum, rest, rest_of_squares, rest_of_gaps
