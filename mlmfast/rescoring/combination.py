"""The log-linear total of each hypothesis, and the order it gives a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mlmfast.errors import InputError, SettingsError
from mlmfast.rescoring.normalisation import Float64Array
from mlmfast.types import BoolArray, Int64Array

Missing = Literal["first_pass_rank", "last"]
MISSING = ("first_pass_rank", "last")
"""Where a hypothesis without a total goes: stays at its first-pass rank, or comes after all others."""


@dataclass(frozen=True)
class Ranking:
    """order int64[H]: the indices of H hypotheses, best first. scores float64[H]: the total of each, in the
    order of the list; NaN where a feature is missing."""

    order: Int64Array
    scores: Float64Array


def combine(
    features: Float64Array, weights: Float64Array, *, missing: Missing = "first_pass_rank"
) -> Ranking:
    """Rank a list by the weighted sums of its features.

    features float64[H, F], one row per hypothesis in first-pass order, NaN where a score is missing; weights
    float64[F]. Larger totals first, ties to the lower number. A hypothesis with a NaN, whatever the weight,
    has no total: under `first_pass_rank` it keeps the place it has in the list and the others fill the rest,
    so that it is first only if the first pass had it first; under `last` it comes after all others, in
    first-pass order. Raises InputError for an infinite feature, SettingsError for weights that do not fit.
    """
    if missing not in MISSING:
        raise SettingsError(f"unknown missing={missing!r}; expected one of {', '.join(MISSING)}")
    scores = weighted_sum(features, weights)
    absent = np.isnan(scores)
    present = np.flatnonzero(~absent)
    ranked = present[np.argsort(-scores[present], kind="stable")]
    return Ranking(placed(ranked, len(scores), missing), scores)


def placed(ranked: Int64Array, count: int, missing: Missing) -> Int64Array:
    """int64[H], the order of a list of `count` hypotheses: those that are `ranked`, best first, and the
    others where `missing` has those without a total."""
    order = np.arange(count)
    absent = np.setdiff1d(order, ranked)
    if missing == "last":
        return np.concatenate([ranked, absent])
    order[np.sort(ranked)] = ranked
    return order


def weighted_sum(features: Float64Array, weights: Float64Array) -> Float64Array:
    """float64[N]: sum over the F columns of weight * feature, NaN where a row holds one.

    Column by column from the first: the same additions for any number of rows, and larger features never
    give a smaller sum, rounding included, where the weights are not negative.
    """
    check_features(features, weights)
    return sum_of_checked(features, weights)


def sum_of_checked(features: Float64Array, weights: Float64Array) -> Float64Array:
    """`weighted_sum` of features that were checked."""
    total = np.zeros(len(features))
    for column, weight in zip(features.T, weights, strict=True):
        total = total + weight * column
    return total


def check_features(features: Float64Array, weights: Float64Array) -> None:
    if features.ndim != 2 or np.shape(weights) != (features.shape[1],):
        raise SettingsError(
            f"features of shape {features.shape} and weights of shape {np.shape(weights)}: "
            "expected [hypotheses, features] and one weight per feature"
        )
    if not np.isfinite(weights).all():
        raise SettingsError(f"weights {list(map(float, weights))}: expected finite numbers")
    infinite = np.argwhere(np.isinf(features))
    if len(infinite):
        row, column = infinite[0]
        raise InputError(
            f"feature {column + 1} is {features[row, column]}: expected a finite number, or NaN for a "
            "missing score",
            where=f"hypothesis {row + 1}",
        )


def can_win(features: Float64Array, *, missing: Missing) -> BoolArray:
    """bool[H]: the hypotheses of one list that some weights put first under `combine`."""
    present: BoolArray = np.logical_not(np.isnan(features).any(axis=1))
    if len(present) and (missing == "first_pass_rank" or not present.any()) and not present[0]:
        present[:] = False
        present[0] = True
    return present
