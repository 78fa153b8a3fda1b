"""Figures over a corpus of scored texts, and correlations."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlmfast.results import TextScore, perplexity


@dataclass
class CorpusTotals:
    """Running totals; texts without a score count as texts only."""

    num_texts: int = 0
    num_scored: int = 0
    num_empty: int = 0
    num_errors: int = 0
    num_tokens: int = 0
    num_unknown: int = 0
    num_words: int = 0
    score: float = 0.0

    def add(self, result: TextScore) -> None:
        self.num_texts += 1
        self.num_errors += result.error is not None
        self.num_empty += "empty" in result.flags
        if result.score is None or result.text is None:
            return
        self.num_scored += 1
        self.num_tokens += result.num_tokens
        self.num_unknown += result.num_unknown
        self.num_words += result.num_words
        self.score += result.score

    @property
    def pppl(self) -> float | None:
        """Pseudo-perplexity per token: exp(-sum of scores / number of scored tokens), over the corpus and
        not averaged over texts (Salazar et al. 2020, section 2.3, equation 4). None without tokens."""
        return perplexity(self.score, self.num_tokens)

    @property
    def word_pppl(self) -> float | None:
        """The same per white-space word."""
        return perplexity(self.score, self.num_words)


def corpus_totals(results: Iterable[TextScore]) -> CorpusTotals:
    totals = CorpusTotals()
    for result in results:
        totals.add(result)
    return totals


def pearson(first: ArrayLike, second: ArrayLike) -> float:
    """Pearson's correlation of two columns of n finite values; NaN for fewer than two, and where either
    column is constant."""
    columns = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if any(len(values) < 2 or np.all(values == values[0]) for values in columns):
        return math.nan
    x, y = (values - values.mean() for values in columns)
    product = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / product if product > 0 else math.nan


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Spearman's rank correlation of two columns of n finite values: Pearson's of their ranks, equal values
    sharing their mean rank (Kendall & Gibbons 1990, section 3.8). NaN for fewer than two, and where either
    column is constant."""
    return pearson(mean_ranks(first), mean_ranks(second))


def mean_ranks(values: ArrayLike) -> NDArray[np.float64]:
    """float64[n], ranks from 1; equal values get the mean of the ranks they take up together."""
    _, group, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[group]
    return ranks
