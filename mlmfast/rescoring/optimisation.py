"""Weights that are best for a corpus metric: exact line searches from several starts (Och 2003, 5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlmfast.rescoring.corpus import NBestCorpus
from mlmfast.rescoring.line_search import best_step, profile
from mlmfast.rescoring.metrics import Metric
from mlmfast.rescoring.normalisation import Float64Array
from mlmfast.types import BoolArray, Int64Array

MAX_ROUNDS = 50


@dataclass(frozen=True)
class SearchSpace:
    """start float64[F]: where the first search starts. free bool[F]: the weights that move; the scale of all
    is arbitrary, so one at least stays. at_least_zero bool[F]: those that may not become negative."""

    start: Float64Array
    free: BoolArray
    at_least_zero: BoolArray


def metric_of(corpus: NBestCorpus, metric: Metric, chosen: Int64Array) -> float:
    """The metric of the chosen hypotheses, int64[L], one per list."""
    return float(metric.value(corpus.statistics[chosen].sum(axis=0)))


def optimise(
    corpus: NBestCorpus,
    metric: Metric,
    space: SearchSpace,
    *,
    restarts: int,
    random_directions: int,
    rng: np.random.Generator,
) -> Float64Array:
    """float64[F], the best weights found on a corpus whose features have no NaN.

    One search from `start` and one from each of `restarts` random points; of equally good results the
    earliest counts, so that what gains nothing stays at `start`. A single free weight is searched whole by
    one line and needs neither restarts nor random directions.
    """
    scales = spreads(corpus)
    movable = space.free & (scales > 0)
    if movable.sum() <= 1:
        restarts = random_directions = 0
    sign = 1.0 if metric.larger_is_better else -1.0
    best, best_objective = space.start, -np.inf
    for attempt in range(restarts + 1):
        start = space.start if attempt == 0 else random_start(space, movable, scales, rng)
        weights = climb(corpus, metric, space, start, movable, scales, random_directions, rng)
        objective = sign * metric_of(corpus, metric, corpus.winners(weights))
        if objective > best_objective:
            best, best_objective = weights, objective
    return best


def climb(
    corpus: NBestCorpus,
    metric: Metric,
    space: SearchSpace,
    weights: Float64Array,
    movable: BoolArray,
    scales: Float64Array,
    random_directions: int,
    rng: np.random.Generator,
) -> Float64Array:
    """float64[F]: from `weights` along the best of the coordinates and some random directions, again and
    again until none is better."""
    sign = 1.0 if metric.larger_is_better else -1.0
    objective = sign * metric_of(corpus, metric, corpus.winners(weights))
    columns = np.flatnonzero(movable)
    for _ in range(MAX_ROUNDS):
        directions = np.zeros((len(columns) + random_directions, len(weights)))
        directions[np.arange(len(columns)), columns] = 1.0
        noise = rng.standard_normal((random_directions, len(columns)))
        directions[len(columns) :, columns] = noise / scales[columns]
        better = weights
        for direction in directions:
            low, high = step_bounds(weights, direction, space.at_least_zero)
            line = profile(corpus, metric, weights, direction)
            step, _ = best_step(line, larger_is_better=metric.larger_is_better, low=low, high=high)
            candidate = weights + step * direction
            candidate[space.at_least_zero] = np.maximum(candidate[space.at_least_zero], 0.0)
            # Looked at again where it stands: near a corner rounding may choose another winner.
            reached = sign * metric_of(corpus, metric, corpus.winners(candidate))
            if reached > objective:
                better, objective = candidate, reached
        if better is weights:
            break
        weights = better
    return weights


def step_bounds(
    weights: Float64Array, direction: Float64Array, at_least_zero: BoolArray
) -> tuple[float, float]:
    """The steps that keep those weights, which are at 0 or more, there."""
    low, high = -np.inf, np.inf
    for weight, slope in zip(weights[at_least_zero], direction[at_least_zero], strict=True):
        if slope > 0:
            low = max(low, -weight / slope)
        elif slope < 0:
            high = min(high, -weight / slope)
    return low, high


def spreads(corpus: NBestCorpus) -> Float64Array:
    """float64[F], the standard deviation of each feature about the means of its lists."""
    counts = np.diff(corpus.offsets)
    means = np.add.reduceat(corpus.features, corpus.offsets[:-1], axis=0) / counts[:, None]
    deviations = corpus.features - np.repeat(means, counts, axis=0)
    # What only rounding of the means makes differ is constant.
    tiny = 1e-12 * np.abs(corpus.features).max(axis=0)
    spread = np.sqrt(np.mean(deviations**2, axis=0))
    return np.asarray(np.where(spread > tiny, spread, 0.0))


def random_start(
    space: SearchSpace, movable: BoolArray, scales: Float64Array, rng: np.random.Generator
) -> Float64Array:
    """float64[F], in which each movable feature weighs about as much as the fixed ones do together."""
    fixed = np.sqrt(np.sum((space.start * scales)[~movable] ** 2)) or 1.0
    start = space.start.copy()
    start[movable] = rng.standard_normal(int(movable.sum())) * fixed / scales[movable]
    return np.asarray(np.where(movable & space.at_least_zero, np.abs(start), start))
