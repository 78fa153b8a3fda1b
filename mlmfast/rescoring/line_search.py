"""Exact search of the best weights along a line (Och 2003, section 4; Macherey et al. 2008, section 2).

Along weights = origin + step * direction every hypothesis' total is a straight line in the step, each list's
winner is the upper envelope of its lines, and a corpus metric changes only where an envelope has a corner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlmfast.rescoring.combination import weighted_sum
from mlmfast.rescoring.corpus import NBestCorpus, first_largest
from mlmfast.rescoring.metrics import Metric
from mlmfast.rescoring.normalisation import Float64Array
from mlmfast.scheduling.csr import offsets_of
from mlmfast.types import Int64Array


@dataclass(frozen=True)
class Corners:
    """Where winners change: at steps float64[E], from hypotheses before int64[E] to after int64[E] (indices
    into the corpus), in the order of the steps. first int64[L]: the winners before every corner."""

    first: Int64Array
    steps: Float64Array
    before: Int64Array
    after: Int64Array


@dataclass(frozen=True)
class Profile:
    """A metric along a line: values float64[I] on I intervals between the inner edges float64[I-1]."""

    edges: Float64Array
    values: Float64Array


def upper_envelopes(intercepts: Float64Array, slopes: Float64Array, offsets: Int64Array) -> Corners:
    """The corners of every list's upper envelope; lines intercept + step * slope, float64[N], offsets
    int64[L+1]. Of lines that are equal the first counts.

    All lists walk their envelopes at once, from the left: the next corner is the nearest crossing with a
    steeper line, and the steepest line of those that cross there goes on.
    """
    counts = np.diff(offsets)
    flattest = _at(slopes, first_largest(-slopes, offsets), counts) == slopes
    first = first_largest(np.where(flattest, intercepts, -np.inf), offsets)
    current, step, elements = first, np.full(len(first), -np.inf), np.arange(offsets[-1])
    steps, before, after = [], [], []
    while len(current):
        # Only steeper lines can overtake, so an envelope ends where none is left.
        steeper = slopes[elements] > _at(slopes, current, counts)
        counts = np.add.reduceat(steeper, offsets[:-1], dtype=np.int64)
        elements, going_on = elements[steeper], np.flatnonzero(counts)
        counts, current, step = counts[going_on], current[going_on], step[going_on]
        offsets = offsets_of(counts)
        slope_gap = slopes[elements] - _at(slopes, current, counts)
        crossings = (_at(intercepts, current, counts) - intercepts[elements]) / slope_gap
        nearest = first_largest(-crossings, offsets)
        at_nearest = crossings == _at(crossings, nearest, counts)
        following = first_largest(np.where(at_nearest, slopes[elements], -np.inf), offsets)
        # A rounded crossing must not lie before the corner it follows.
        step = np.maximum(step, crossings[nearest])
        steps.append(step)
        before.append(current)
        current = elements[following]
        after.append(current)
    order = np.argsort(np.concatenate(steps), kind="stable")
    return Corners(first, *(np.concatenate(column)[order] for column in (steps, before, after)))


def _at(values: Float64Array, chosen: Int64Array, counts: Int64Array) -> Float64Array:
    """float64[N], the value of each list's chosen line, once for each of its lines."""
    return np.repeat(values[chosen], counts)


def profile(corpus: NBestCorpus, metric: Metric, origin: Float64Array, direction: Float64Array) -> Profile:
    """The metric along origin + step * direction, both float64[F]; the features without NaN."""
    corners = upper_envelopes(
        weighted_sum(corpus.features, origin), weighted_sum(corpus.features, direction), corpus.offsets
    )
    changes = corpus.statistics[corners.after] - corpus.statistics[corners.before]
    start = corpus.statistics[corners.first].sum(axis=0)
    sums = start + np.concatenate([np.zeros((1, len(start)), dtype=np.int64), np.cumsum(changes, axis=0)])
    last_at_step = np.append(np.diff(corners.steps) > 0, True)[: len(corners.steps)]
    values = metric.value(sums[np.concatenate([[True], last_at_step])])
    edges = corners.steps[last_at_step]
    differs = values[1:] != values[:-1]
    return Profile(edges[differs], values[np.concatenate([[True], differs])])


def best_step(
    line: Profile, *, larger_is_better: bool, low: float = -np.inf, high: float = np.inf
) -> tuple[float, float]:
    """The middle of the best interval within [low, high], and the metric there.

    Of equally good intervals the widest bounded one counts, then the first; only if there is no bounded one
    the step goes past the outermost corner, by the span of all corners.
    """
    starts = np.clip(np.concatenate([[-np.inf], line.edges]), low, high)
    ends = np.clip(np.concatenate([line.edges, [np.inf]]), low, high)
    objective = line.values if larger_is_better else -line.values
    open_intervals = np.flatnonzero(ends > starts)
    if not len(open_intervals):
        return low, float(line.values[np.searchsorted(line.edges, low)])
    best = open_intervals[objective[open_intervals] == objective[open_intervals].max()]
    widths = ends[best] - starts[best]
    chosen = best[np.argmax(np.where(np.isfinite(widths), widths, -1.0))]
    return _middle(float(starts[chosen]), float(ends[chosen]), line.edges), float(line.values[chosen])


def _middle(start: float, end: float, edges: Float64Array) -> float:
    if np.isfinite(start) and np.isfinite(end):
        return (start + end) / 2
    if not np.isfinite(start) and not np.isfinite(end):
        return 0.0
    beyond = float(np.ptp(edges)) if len(edges) else 0.0
    beyond = beyond or abs(start if np.isfinite(start) else end) or 1.0
    return start + beyond if np.isfinite(start) else end - beyond
