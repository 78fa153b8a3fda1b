"""From the logits of a position to a token drawn there."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from mlmfast.errors import ModelError
from mlmfast.types import BoolArray, Float32Array, Int32Array, Int64Array

Float64Array = NDArray[np.float64]
BLOCK = 256
"""Weights summed at a time to find a token: about the root of a vocabulary."""


class Distribution:
    """softmax(logits / temperature) over the allowed tokens, truncated.

    Only the top_k most probable tokens stay, then of these, with their mass as 1, the smallest set whose mass
    reaches top_p (Holtzman et al. 2020, section 3.1); of equally probable ones the lower ids. greedy: the
    most probable token alone.
    """

    def __init__(
        self,
        allowed: BoolArray,
        temperature: float = 1.0,
        *,
        top_k: int | None = None,
        top_p: float | None = None,
        greedy: bool = False,
    ) -> None:
        """allowed bool[V], at least one."""
        self._allowed = allowed
        self._allowed_ids = np.flatnonzero(allowed)
        self._temperature = temperature
        self._top_k = 1 if greedy else top_k
        self._top_p = None if top_p == 1 else top_p

    def allows(self, ids: Int32Array) -> BoolArray:
        """bool[m], which of the tokens int32[m] are allowed."""
        return self._allowed[ids]

    def support(self, logits: Float32Array) -> tuple[Int64Array, Float64Array]:
        """The tokens that can be drawn, int64[m] ascending, and what their probabilities are proportional to,
        float64[m], from the logits float32[V] of a position. Raises ModelError if the largest is not finite.
        """
        ids, values = self._allowed_ids, logits[self._allowed]
        highest = values.max()
        if not math.isfinite(highest):
            raise ModelError(
                f"the model gave {highest} as the largest logit of a position; its weights or this precision "
                "cannot be sampled from"
            )
        if self._top_k is not None:
            kept = largest(values, self._top_k)
            ids, values = ids[kept], values[kept]
        weights = np.subtract(values, highest, dtype=np.float64)
        if self._temperature != 1:
            with np.errstate(over="ignore"):  # to -inf, of weight 0
                weights /= self._temperature
        np.exp(weights, out=weights)
        if self._top_p is not None:
            kept = nucleus(values, weights, self._top_p)
            ids, weights = ids[kept], weights[kept]
        return ids, weights

    def log_prob(self, logits: Float32Array, token: int) -> float:
        """The natural logarithm of a token's probability among the allowed ones, at temperature 1."""
        values = logits[self._allowed]
        highest = values.max()
        total = np.exp(np.subtract(values, highest, dtype=np.float64)).sum()
        return float(logits[token]) - float(highest) - math.log(total)


def draw(ids: Int64Array, weights: Float64Array, uniform: float) -> int:
    """The token that a uniform number, from 0 to less than 1, stands for: the first whose cumulative sum is
    above uniform * sum. Sums are those of blocks, then those in a block."""
    block_sums = np.add.reduceat(weights, np.arange(0, len(weights), BLOCK)).cumsum()
    rest = uniform * block_sums[-1]
    block = int(block_sums.searchsorted(rest, side="right"))
    if block > 0:
        rest -= block_sums[block - 1]
    sums = weights[block * BLOCK : (block + 1) * BLOCK].cumsum()
    # Rounding may leave a rest of the whole block; it goes to the last token with a weight.
    inside = min(sums.searchsorted(rest, side="right"), sums.searchsorted(sums[-1]))
    return int(ids[block * BLOCK + inside])


def largest(values: NDArray[np.floating], count: int) -> Int64Array:
    """Indices of the `count` largest values, ascending; of equal ones the lower indices."""
    if count >= len(values):
        return np.arange(len(values))
    threshold = np.partition(values, len(values) - count)[len(values) - count]
    kept = np.flatnonzero(values >= threshold)
    if len(kept) > count:
        equal = kept[values[kept] == threshold]
        kept = np.setdiff1d(kept, equal[count - len(kept) :], assume_unique=True)
    return kept


def nucleus(values: NDArray[np.floating], weights: Float64Array, mass: float) -> Int64Array:
    """Indices, ascending, of the fewest largest values whose weights reach `mass`, below 1, of their sum; of
    equal ones the lower indices. weights float64[m] rise with values [m]."""
    total = weights.sum()
    # Those below this are less than 1 - mass together, so that the others are enough.
    candidates = np.flatnonzero(weights >= (1 - mass) * total / len(weights))
    cumulative = np.sort(weights[candidates])[::-1].cumsum()
    count = int(cumulative.searchsorted(mass * total)) + 1
    return candidates[largest(values[candidates], count)]
