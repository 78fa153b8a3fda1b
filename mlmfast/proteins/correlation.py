"""Rank correlation of scores with measurements."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def average_ranks(values: ArrayLike) -> NDArray[np.float64]:
    """float64[n], ranks from 1; equal values get the mean of the ranks they take up together."""
    _, group, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: NDArray[np.float64] = (ends - (counts - 1) / 2)[group]
    return ranks


def spearman(a: ArrayLike, b: ArrayLike) -> float | None:
    """Spearman's rank correlation of two columns of n finite values: Pearson's of their average ranks
    (Kendall & Gibbons 1990, section 3.8); None for fewer than two values or a column that is constant."""
    ranks = [average_ranks(values) for values in (a, b)]
    x, y = (column - column.mean() if len(column) else column for column in ranks)
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale > 0 else None
