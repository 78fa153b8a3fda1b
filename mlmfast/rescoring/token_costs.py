"""Estimates of what a token will cost (-log p), from what is known of its list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlmfast.rescoring.normalisation import Float64Array
from mlmfast.types import BoolArray, Float32Array, Int32Array, Int64Array


@dataclass(frozen=True)
class TokenCosts:
    """expected float64[T]: a cost for each token of a list, in nats, before any is known. groups: int64[T]
    each, narrowest first; tokens with one number of a group are expected to cost the same."""

    expected: Float64Array
    groups: tuple[Int64Array, ...]

    def estimates(self, log_probs: Float32Array, known: BoolArray) -> Float64Array:
        """float64[T]: the mean cost of the known tokens in the narrowest group that has any; without one what
        was expected, plus how much more the known tokens cost than expected, on average."""
        costs = -log_probs[known].astype(np.float64)
        excess = max(float(np.mean(costs - self.expected[known])), 0.0) if len(costs) else 0.0
        estimates = self.expected + excess
        for group in reversed(self.groups):
            num_parts = int(group.max(initial=-1)) + 1
            counts = np.bincount(group[known], minlength=num_parts)
            means = np.bincount(group[known], weights=costs, minlength=num_parts) / np.maximum(counts, 1)
            estimates = np.where(counts[group] > 0, means[group], estimates)
        return estimates


def costs_of(input_ids: Int32Array, offsets: Int64Array) -> TokenCosts:
    """The costs of a list by what its hypotheses have in common: a token costs as it did between the same
    neighbours, else as it did anywhere; where nothing is known the places where hypotheses differ come first.

    No row is spent on better guesses: on speech lists an unmasked row per hypothesis saved fewer rows than
    it cost, and even the true costs would save only 1 more row in 100 than these.
    """
    contexts = contexts_of(input_ids, offsets)
    return TokenCosts(rarity(contexts, offsets), (contexts, numbered(input_ids)))


def contexts_of(input_ids: Int32Array, offsets: Int64Array) -> Int64Array:
    """int64[T]: a number for each token id together with its left and right neighbour in its hypothesis, of
    the H hypotheses' input_ids int32[T], offsets int64[H+1]."""
    padded = np.full(len(input_ids) + 2, -1, dtype=np.int64)
    padded[1:-1] = input_ids
    left, right = padded[:-2].copy(), padded[2:].copy()
    filled = np.flatnonzero(np.diff(offsets))
    left[offsets[filled]] = -1
    right[offsets[filled + 1] - 1] = -1
    return numbered(numbered(left, input_ids), right)


def numbered(*columns: NDArray[Any]) -> Int64Array:
    """int64[T]: from 0, one number for each tuple of values (of at most two columns of int32)."""
    keys = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values = column.astype(np.int64) - column.min(initial=0)
        keys = keys * (int(values.max(initial=0)) + 1) + values
    return np.unique(keys, return_inverse=True)[1].astype(np.int64)


def rarity(contexts: Int64Array, offsets: Int64Array) -> Float64Array:
    """float64[T] from 0 to 1: the share of the other hypotheses that lack the token's context. Expected costs
    for want of better ones: the places where hypotheses differ come first."""
    num_hypotheses = len(offsets) - 1
    owner = np.repeat(np.arange(num_hypotheses), np.diff(offsets))
    num_contexts = int(contexts.max(initial=-1)) + 1
    distinct = np.unique(owner * num_contexts + contexts)
    holders = np.bincount(distinct % max(num_contexts, 1), minlength=num_contexts)
    return (num_hypotheses - holders[contexts]) / max(num_hypotheses - 1, 1)
