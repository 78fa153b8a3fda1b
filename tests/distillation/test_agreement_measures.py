"""Kendall's correlation against its definition and scipy; agreement of texts of several lengths."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from mlmfast.training.distillation.agreement import (
    agreement,
    errors_by_length,
    kendall,
    list_kendall,
)

RANDOM = np.random.default_rng(3)
PAIRS = [
    (RANDOM.standard_normal(50), RANDOM.standard_normal(50)),
    (RANDOM.integers(0, 4, 30).astype(float), RANDOM.integers(0, 4, 30).astype(float)),
    (np.arange(7.0), np.arange(7.0) ** 3),
    (np.arange(5.0), -np.arange(5.0)),
]


def plain_tau_b(first: np.ndarray, second: np.ndarray) -> float:
    concordant = discordant = only_first = only_second = 0
    for i in range(len(first)):
        for j in range(i):
            a, b = first[i] - first[j], second[i] - second[j]
            if a * b > 0:
                concordant += 1
            elif a * b < 0:
                discordant += 1
            elif a != 0:
                only_first += 1
            elif b != 0:
                only_second += 1
    pairs = concordant + discordant
    return (concordant - discordant) / math.sqrt((pairs + only_first) * (pairs + only_second))


@pytest.mark.parametrize("pair", PAIRS)
def test_against_the_plain_definition(pair):
    first, second = pair
    assert kendall(first, second) == pytest.approx(plain_tau_b(first, second))


@pytest.mark.parametrize("pair", PAIRS)
def test_against_scipy(pair):
    first, second = pair
    assert kendall(first, second) == pytest.approx(stats.kendalltau(first, second)[0])


@pytest.mark.parametrize("values", [np.zeros(0), np.zeros(1), np.ones(4)])
def test_nothing_to_correlate_is_nan(values):
    other = np.arange(float(len(values)))
    assert math.isnan(kendall(values, other))


def test_within_lists():
    teacher = np.array([1.0, 2.0, 3.0, 5.0, 1.0, np.nan, 4.0])
    student = np.array([1.0, 3.0, 2.0, 7.0, 2.0, 3.0, 0.0])
    offsets = np.array([0, 3, 3, 6, 7])  # of three, none, three with one unscored, one
    assert list_kendall(teacher, student, offsets) == pytest.approx((1 / 3 + 1) / 2)
    assert math.isnan(list_kendall(teacher[:1], student[:1], np.array([0, 1])))
    assert math.isnan(list_kendall(teacher[:0], student[:0], np.array([0])))


def test_errors_by_length():
    found = errors_by_length(np.array([1.0, -2.0, 0.5, 0.5]), np.array([5, 1, 6, 200]))
    assert [(e.shortest, e.longest, e.num_texts) for e in found] == [(1, 5, 2), (6, 6, 1), (200, 200, 1)]
    assert found[0].mean == pytest.approx(-0.5)
    assert found[0].deviation == pytest.approx(math.sqrt(2.5))


def test_agreement_of_sums_and_of_means():
    teacher, num_tokens = np.array([-4.0, -6.0, -30.0]), np.array([1, 2, 20])
    found = agreement(teacher, np.array([-3.0, -7.0, -29.0]), num_tokens)
    assert (found.num_texts, found.spearman, found.spearman_per_token) == (3, 1.0, 0.5)
    assert found.rank_correlation == 0.75
    assert found.record()["errors"][0] == {
        "shortest": 1, "longest": 2, "num_texts": 2, "mean": 0.25, "deviation": pytest.approx(0.790569),
    }  # fmt: skip
