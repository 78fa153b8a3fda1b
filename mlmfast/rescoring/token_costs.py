"""Estimates of what a token will cost (-log p), from what is known of its list."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlmfast.rescoring.normalisation import Float64Array
from mlmfast.types import BoolArray, Float32Array, Int32Array, Int64Array


@dataclass(frozen=True)
class TokenCosts:
    """expected float64[T]: a cost for each token of a list, in nats, as an unmasked pass or a student expects
    it. contexts int64[T]: tokens of one number are expected to cost the same, see `contexts_of`."""

    expected: Float64Array
    contexts: Int64Array

    def estimates(self, log_probs: Float32Array, known: BoolArray) -> Float64Array:
        """float64[T]: the mean cost of the known tokens in the same context; without one what was expected,
        plus how much more the known tokens cost than expected, on average."""
        costs = -log_probs[known].astype(np.float64)
        num_contexts = int(self.contexts.max(initial=-1)) + 1
        counts = np.bincount(self.contexts[known], minlength=num_contexts)
        sums = np.bincount(self.contexts[known], weights=costs, minlength=num_contexts)
        excess = max(float(np.mean(costs - self.expected[known])), 0.0) if len(costs) else 0.0
        means = sums / np.maximum(counts, 1)
        return np.where(counts[self.contexts] > 0, means[self.contexts], self.expected + excess)


def contexts_of(input_ids: Int32Array, offsets: Int64Array) -> Int64Array:
    """int64[T]: a number for each token id together with its left and right neighbour in its hypothesis, of
    the H hypotheses' input_ids int32[T], offsets int64[H+1]."""
    padded = np.full(len(input_ids) + 2, -1, dtype=np.int64)
    padded[1:-1] = input_ids
    left, right = padded[:-2].copy(), padded[2:].copy()
    filled = np.flatnonzero(np.diff(offsets))
    left[offsets[filled]] = -1
    right[offsets[filled + 1] - 1] = -1
    _, numbers = np.unique(np.stack([left, input_ids, right], axis=1), axis=0, return_inverse=True)
    return np.asarray(numbers.reshape(-1), dtype=np.int64)


def rarity(contexts: Int64Array, offsets: Int64Array) -> Float64Array:
    """float64[T] from 0 to 1: the share of the other hypotheses that lack the token's context. Expected costs
    for want of better ones: the places where hypotheses differ come first."""
    num_hypotheses = len(offsets) - 1
    owner = np.repeat(np.arange(num_hypotheses), np.diff(offsets))
    distinct = np.unique(np.stack([owner, contexts], axis=1), axis=0)
    holders = np.bincount(distinct[:, 1])
    return (num_hypotheses - holders[contexts]) / max(num_hypotheses - 1, 1)
