"""Tokens drawn from logits, against probabilities by plain sorting."""

from __future__ import annotations

import numpy as np
import pytest
from plain_distribution import plain_probabilities

from mlmfast.errors import ModelError
from mlmfast.generation.distribution import BLOCK, Distribution, draw, largest, nucleus

SETTINGS = [
    {},
    {"temperature": 0.5},
    {"temperature": 3.0},
    {"top_k": 1},
    {"top_k": 7},
    {"top_k": 10_000},
    {"top_p": 0.01},
    {"top_p": 0.5},
    {"top_p": 0.999},
    {"top_k": 20, "top_p": 0.7, "temperature": 1.5},
]


def problem(vocab_size: int, seed: int, *, ties: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Logits float32[V], several of them equal if `ties`, and which tokens are allowed."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, vocab_size).astype(np.float32)
    allowed = rng.random(vocab_size) < 0.8
    allowed[rng.integers(vocab_size)] = True
    return np.round(logits) if ties else logits, allowed


def dense(distribution: Distribution, logits: np.ndarray) -> np.ndarray:
    ids, weights = distribution.support(logits)
    assert (np.diff(ids) > 0).all()
    probabilities = np.zeros(len(logits))
    probabilities[ids] = weights / weights.sum()
    return probabilities


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("vocab_size", [1, 2, 33, 257, 5000])
def test_probabilities(vocab_size, ties, settings):
    for seed in range(5):
        logits, allowed = problem(vocab_size, seed, ties=ties)
        expected = plain_probabilities(logits, allowed, **settings)
        found = dense(Distribution(allowed, **settings), logits)
        np.testing.assert_array_equal(found > 0, expected > 0)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert not found[~allowed].any()


def test_of_equal_logits_the_lower_ids_stay():
    logits, everything = np.array([1, 2, 2, 2, 2, 0], dtype=np.float32), np.ones(6, dtype=bool)
    assert Distribution(everything, top_k=3).support(logits)[0].tolist() == [1, 2, 3]
    assert Distribution(everything, top_p=0.4).support(logits)[0].tolist() == [1, 2]
    assert Distribution(everything, greedy=True).support(logits)[0].tolist() == [1]


def test_the_mass_of_the_nucleus_is_just_reached():
    logits = np.log(np.array([0.25, 0.5, 0.25])).astype(np.float32)
    weights = np.array([0.25, 0.5, 0.25])
    assert nucleus(logits, weights, 0.5).tolist() == [1]
    assert nucleus(logits, weights, 0.5001).tolist() == [0, 1]
    assert nucleus(logits, weights, 0.75).tolist() == [0, 1]
    assert nucleus(logits, weights, 0.7501).tolist() == [0, 1, 2]


def test_top_k_comes_before_top_p():
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1])).astype(np.float32)
    both = Distribution(np.ones(4, dtype=bool), top_k=2, top_p=0.5)
    assert both.support(logits)[0].tolist() == [0]  # 0.4 of 0.7


def test_the_whole_mass_is_no_truncation():
    logits, allowed = problem(5000, 0)
    np.testing.assert_array_equal(
        dense(Distribution(allowed, top_p=1.0), logits), dense(Distribution(allowed), logits)
    )


def test_greedy_is_the_most_probable_allowed_token():
    for seed in range(20):
        logits, allowed = problem(300, seed)
        ids, weights = Distribution(allowed, 0.3, greedy=True).support(logits)
        assert ids.tolist() == [np.where(allowed, logits, -np.inf).argmax()]
        assert draw(ids, weights, 0.999) == ids[0]


@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 1000])
def test_a_uniform_number_stands_for_the_token_at_that_cumulative_probability(count):
    rng = np.random.default_rng(count)
    weights = rng.integers(0, 4, count) / 4  # sums are exact
    weights[rng.integers(count)] = 0.25
    ids = np.arange(count) * 3
    cumulative = weights.cumsum()
    ends = cumulative / cumulative[-1]
    for uniform in [0.0, *rng.random(200), *ends[ends < 1], np.nextafter(1, 0)]:
        expected = ids[cumulative.searchsorted(uniform * cumulative[-1], side="right")]
        found = draw(ids, weights, uniform)
        assert found == expected
        assert weights[found // 3] > 0


def test_rounding_never_draws_a_token_without_probability():
    rng = np.random.default_rng(0)
    for _ in range(300):
        weights = np.exp(rng.normal(0, 8, 3 * BLOCK))
        weights[rng.random(len(weights)) < 0.5] = 0
        weights[-rng.integers(1, BLOCK) :] = 0
        weights[[3, BLOCK + 3]] = 1.0
        ids = np.arange(len(weights))
        ends = np.add.reduceat(weights, np.arange(0, len(weights), BLOCK)).cumsum()
        for uniform in (0.0, *(ends[:-1] / ends[-1]), *np.nextafter(ends / ends[-1], 0)):
            assert weights[draw(ids, weights, min(uniform, np.nextafter(1, 0)))] > 0


def test_draws_have_the_probabilities():
    logits, allowed = problem(40, 1)
    distribution = Distribution(allowed, top_k=6)
    ids, weights = distribution.support(logits)
    uniforms = (np.arange(20_000) + 0.5) / 20_000
    counts = np.bincount([draw(ids, weights, u) for u in uniforms], minlength=40)
    expected = plain_probabilities(logits, allowed, top_k=6)
    np.testing.assert_allclose(counts / 20_000, expected, atol=1 / 20_000)


def test_log_prob_is_that_of_the_allowed_tokens_at_temperature_1():
    logits, allowed = problem(500, 2)
    expected = np.log(plain_probabilities(logits, allowed)[allowed])
    distribution = Distribution(allowed, 0.2, top_k=3)
    found = [distribution.log_prob(logits, token) for token in np.flatnonzero(allowed)]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_extreme_logits():
    logits = np.array([3e38, -3e38, -np.inf, 2.9e38], dtype=np.float32)
    found = dense(Distribution(np.ones(4, dtype=bool), 1e-3), logits)
    assert found.tolist() == [1, 0, 0, 0]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("settings", [{}, {"top_p": 0.5}, {"top_k": 3}], ids=str)
def test_the_least_temperature_draws_the_most_probable(settings):
    logits = np.array([1, 5, 5, -2], dtype=np.float32)
    found = dense(Distribution(np.ones(4, dtype=bool), 5e-324, **settings), logits)
    assert found.tolist() == ([0, 1, 0, 0] if "top_p" in settings else [0, 0.5, 0.5, 0])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("settings", [{}, {"top_k": 2}, {"greedy": True}])
def test_logits_that_are_not_finite_are_an_error(bad, settings):
    logits = np.array([0, bad, 1, 2], dtype=np.float32)
    with pytest.raises(ModelError, match="largest logit of a position"):
        Distribution(np.ones(4, dtype=bool), **settings).support(logits)
    others = np.array([True, False, True, True])
    assert Distribution(others, **settings).support(logits)[0][-1] == 3


@pytest.mark.parametrize("count", [1, 3, 100, 101])
def test_the_largest_values(count):
    values = np.round(np.random.default_rng(count).normal(0, 2, 100))
    order = np.lexsort((np.arange(100), -values))
    assert largest(values, count).tolist() == sorted(order[:count].tolist())
