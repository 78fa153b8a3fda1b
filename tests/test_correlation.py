"""Pearson's and Spearman's correlation: their definitions, scipy, and published scores of a real scan."""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest
from scipy import stats
from tiny_models import DATA

from mlmfast.metrics import mean_ranks, pearson, spearman

RANDOM = np.random.default_rng(3)
PAIRS = [
    (RANDOM.standard_normal(50), RANDOM.standard_normal(50)),
    (RANDOM.integers(0, 4, 30).astype(float), RANDOM.integers(0, 4, 30).astype(float)),
    (np.arange(7.0), np.arange(7.0) ** 3),
    (np.arange(5), -np.arange(5)),
    ([2.0, 1.0], [0.1, 0.3]),
]


def plain_ranks(values) -> list[float]:
    return [sum(v < x for v in values) + (sum(v == x for v in values) + 1) / 2 for x in values]


def plain_pearson(a, b) -> float:
    mx, my = sum(a) / len(a), sum(b) / len(b)
    product = sum((p - mx) * (q - my) for p, q in zip(a, b, strict=True))
    return product / (sum((p - mx) ** 2 for p in a) * sum((q - my) ** 2 for q in b)) ** 0.5


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_the_definitions_agree(first, second):
    assert mean_ranks(first) == pytest.approx(plain_ranks(first))
    assert pearson(first, second) == pytest.approx(plain_pearson(first, second), abs=1e-12)
    ranks = plain_pearson(plain_ranks(first), plain_ranks(second))
    assert spearman(first, second) == pytest.approx(ranks, abs=1e-12)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_scipy_agrees(first, second):
    assert pearson(first, second) == pytest.approx(stats.pearsonr(first, second)[0])
    assert spearman(first, second) == pytest.approx(stats.spearmanr(first, second)[0])


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 1.0, 1.0, 1.0], [0.1, 0.1, 0.1]])
def test_nothing_to_correlate_is_nan(values):
    """The mean of three 0.1 is not 0.1."""
    other = np.arange(float(len(values)))
    for measure in (pearson, spearman):
        assert math.isnan(measure(values, other))
        assert math.isnan(measure(other, values))


def test_published_scores():
    """100 mutants of beta-lactamase: the five ESM-1v models and their mean rank fitness as published."""
    with (DATA / "proteins" / "beta_lactamase.csv").open() as file:
        rows = list(csv.DictReader(file))
    fitness = [float(row["DMS_score"]) for row in rows]
    models = np.array([[float(row[f"esm1v_{k}"]) for k in range(1, 6)] for row in rows])
    for column in (*models.T, models.mean(axis=1)):
        found = spearman(column, fitness)
        assert found == pytest.approx(plain_pearson(plain_ranks(column), plain_ranks(fitness)), abs=1e-12)
        assert found > 0.5
