"""Figures over a corpus of scored texts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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
