"""The exact line search against brute force: exact rational arithmetic between all crossings."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_lists import random_corpus

from mlmfast.rescoring.combination import weighted_sum
from mlmfast.rescoring.corpus import NBestCorpus
from mlmfast.rescoring.line_search import Profile, best_step, profile, upper_envelopes
from mlmfast.rescoring.metrics import ErrorRate
from mlmfast.rescoring.normalisation import Float64Array

METRIC = ErrorRate()
Lines = list[list[tuple[int, int]]]
LISTS = st.lists(
    st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=1, max_size=7),
    min_size=1,
    max_size=4,
)


def crossings(lists: Lines) -> list[Fraction]:
    """The steps at which two lines of a list cross."""
    return sorted(
        {
            Fraction(a - c, d - b)
            for lines in lists
            for number, (a, b) in enumerate(lines)
            for c, d in lines[:number]
            if b != d
        }
    )


def between(steps: list[Fraction]) -> list[Fraction]:
    """A step in every open interval between the given ones."""
    if not steps:
        return [Fraction(0)]
    middles = [(low + high) / 2 for low, high in pairwise(steps)]
    return [steps[0] - 1, *middles, steps[-1] + 1]


def plain_winners(lists: Lines, step: Fraction) -> list[int]:
    """The winner of each list, counted through all of them."""
    winners, start = [], 0
    for lines in lists:
        totals = [intercept + step * slope for intercept, slope in lines]
        winners.append(start + totals.index(max(totals)))
        start += len(lines)
    return winners


@settings(max_examples=300, deadline=None)
@given(LISTS)
def test_winners_on_every_interval(lists: Lines) -> None:
    lines = np.array([line for each in lists for line in each], dtype=np.float64)
    counts = [len(each) for each in lists]
    owner = np.repeat(np.arange(len(lists)), counts)
    corners = upper_envelopes(lines[:, 0], lines[:, 1], np.concatenate([[0], np.cumsum(counts)]))
    assert (np.diff(corners.steps) >= 0).all()
    for step in between(crossings(lists)):
        winners = corners.first.copy()
        for corner, before, after in zip(corners.steps, corners.before, corners.after, strict=True):
            if corner < step:
                assert winners[owner[before]] == before
                winners[owner[before]] = after
        assert winners.tolist() == plain_winners(lists, step)


def lines_of(corpus: NBestCorpus, origin: Float64Array, direction: Float64Array) -> Lines:
    intercepts, slopes = weighted_sum(corpus.features, origin), weighted_sum(corpus.features, direction)
    return [
        [(int(intercepts[place]), int(slopes[place])) for place in range(start, end)]
        for start, end in zip(corpus.offsets[:-1], corpus.offsets[1:], strict=True)
    ]


@pytest.mark.parametrize("seed", range(60))
def test_profile_and_best_step(seed: int) -> None:
    rng = np.random.default_rng(seed)
    corpus = random_corpus(rng, num_lists=6, most_hypotheses=8, num_features=3)
    origin, direction = rng.integers(-2, 3, (2, 3)).astype(np.float64)
    line = profile(corpus, METRIC, origin, direction)
    assert (np.diff(line.edges) > 0).all()
    lists = lines_of(corpus, origin, direction)
    steps = between(crossings(lists))
    plain = [float(METRIC.value(corpus.statistics[plain_winners(lists, step)].sum(axis=0))) for step in steps]
    exact = [line.values[np.searchsorted(line.edges, float(step))] for step in steps]
    assert exact == plain
    step, value = best_step(line, larger_is_better=False)
    assert value == min(plain)
    chosen = plain_winners(lists, Fraction(step))
    assert float(METRIC.value(corpus.statistics[chosen].sum(axis=0))) == value


def test_every_metric_value_on_a_dense_grid_of_real_features() -> None:
    rng = np.random.default_rng(7)
    corpus = random_corpus(rng, num_lists=30, most_hypotheses=20, num_features=2)
    corpus.features[:] = rng.normal(size=corpus.features.shape)
    origin, direction = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    line = profile(corpus, METRIC, origin, direction)
    for step in np.linspace(-20, 20, 2001):
        winners = corpus.winners(origin + step * direction)
        value = float(METRIC.value(corpus.statistics[winners].sum(axis=0)))
        assert line.values[np.searchsorted(line.edges, step)] == value


@pytest.mark.parametrize(
    ("edges", "values", "bounds", "step", "value"),
    [
        ([1.0, 2.0, 4.0], [3.0, 1.0, 2.0, 2.5], (-np.inf, np.inf), 1.5, 1.0),
        ([1.0, 2.0, 4.0, 7.0], [3.0, 1.0, 2.0, 1.0, 3.0], (-np.inf, np.inf), 5.5, 1.0),
        ([1.0, 2.0], [1.0, 1.5, 1.0], (-np.inf, np.inf), 0.0, 1.0),
        ([1.0, 2.0], [3.0, 2.0, 1.0], (-np.inf, np.inf), 3.0, 1.0),
        ([-4.0], [1.0, 2.0], (-np.inf, np.inf), -8.0, 1.0),
        ([0.0], [1.0, 2.0], (-np.inf, np.inf), -1.0, 1.0),
        ([], [5.0], (-np.inf, np.inf), 0.0, 5.0),
        ([], [5.0], (0.0, 3.0), 1.5, 5.0),
        ([1.0, 2.0], [0.0, 2.0, 1.0], (1.0, np.inf), 3.0, 1.0),
        ([1.0, 2.0], [0.0, 2.0, 1.0], (1.2, 1.2), 1.2, 2.0),
        ([1.0, 2.0], [0.0, 2.0, 1.0], (0.0, 5.0), 0.5, 0.0),
    ],
)
def test_middle_of_the_best_interval(
    edges: list[float], values: list[float], bounds: tuple[float, float], step: float, value: float
) -> None:
    line = Profile(np.array(edges), np.array(values))
    assert best_step(line, larger_is_better=False, low=bounds[0], high=bounds[1]) == (step, value)
    mirrored = Profile(line.edges, -line.values)
    assert best_step(mirrored, larger_is_better=True, low=bounds[0], high=bounds[1]) == (step, -value)
