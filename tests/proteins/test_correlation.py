"""Spearman's correlation against its definition, and on published scores of a real scan."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from tiny_models import DATA

from mlmfast.proteins import spearman


def plain_spearman(a: list[float], b: list[float]) -> float:
    """Pearson's correlation of the numbers of smaller values plus half of those that are equal."""
    x, y = ([sum((v < u) + (v == u) / 2 for v in values) for u in values] for values in (a, b))
    mx, my = sum(x) / len(x), sum(y) / len(y)
    product = sum((p - mx) * (q - my) for p, q in zip(x, y, strict=True))
    return product / (sum((p - mx) ** 2 for p in x) * sum((q - my) ** 2 for q in y)) ** 0.5


@pytest.mark.parametrize("distinct", [1000, 4])
def test_the_definition_agrees(distinct: int) -> None:
    random = np.random.default_rng(distinct)
    for n in (2, 3, 50):
        a, b = (random.integers(0, distinct, n).astype(float).tolist() for _ in range(2))
        a[0], b[0], a[1], b[1] = 0.0, 0.0, 1.0, 1.0  # not constant
        assert spearman(a, b) == pytest.approx(plain_spearman(a, b), abs=1e-12)


@pytest.mark.parametrize("columns", [([], []), ([1.0], [2.0]), ([1.0, 1.0, 1.0], [1.0, 2.0, 3.0])])
def test_where_it_is_not_defined(columns: tuple[list[float], list[float]]) -> None:
    assert spearman(*columns) is None


def test_published_scores() -> None:
    """100 mutants of beta-lactamase: the five ESM-1v models and their mean rank fitness as published."""
    with (DATA / "proteins" / "beta_lactamase.csv").open() as file:
        rows = list(csv.DictReader(file))
    fitness = [float(row["DMS_score"]) for row in rows]
    models = np.array([[float(row[f"esm1v_{k}"]) for k in range(1, 6)] for row in rows])
    for column in (*models.T, models.mean(axis=1)):
        found = spearman(column, fitness)
        assert found == pytest.approx(plain_spearman(column.tolist(), fitness), abs=1e-12)
        assert found > 0.5
