"""How likely a model finds the samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mlmfast.metrics import CorpusTotals
from mlmfast.results import PLL_MASKINGS
from mlmfast.scorer import Scorer


@dataclass(frozen=True)
class Likelihood:
    """Scores of all samples under one model, natural logs.

    score: sum over samples (of PLLs, under the maskings that give one); mean_score: per scored sample.
    pppl: exp(-score / num_tokens), per token over the corpus: the pseudo-perplexity under a masked model, the
    perplexity under a causal one; word_pppl: per white-space word. None without tokens.
    num_skipped: samples that could not be scored; empty ones have no score either.
    """

    masking: str
    num_scored: int
    num_empty: int
    num_skipped: int
    num_tokens: int
    num_unknown: int
    score: float
    mean_score: float | None
    pppl: float | None
    word_pppl: float | None

    @property
    def is_pll(self) -> bool:
        """Whether the scores are pseudo-log-likelihoods."""
        return self.masking in PLL_MASKINGS


def likelihood(
    scorer: Scorer,
    samples: Iterable[str],
    masking: str | None = None,
    *,
    scored: Callable[[int], None] = lambda num_tokens: None,
    **options: object,
) -> Likelihood:
    """Scores the samples; masking and options as for `Scorer.score_iter`. scored: called after each sample.

    Raises SettingsError for options that do not fit the model, InputError for a sample, naming its index.
    """
    name = scorer.default_masking if masking is None else masking
    totals = CorpusTotals()
    for result in scorer.score_iter(samples, name, **options):  # type: ignore[arg-type]
        totals.add(result)
        scored(result.num_tokens)
    return Likelihood(
        masking=name,
        num_scored=totals.num_scored,
        num_empty=totals.num_empty,
        num_skipped=totals.num_errors,
        num_tokens=totals.num_tokens,
        num_unknown=totals.num_unknown,
        score=totals.score,
        mean_score=totals.score / totals.num_scored if totals.num_scored else None,
        pppl=totals.pppl,
        word_pppl=totals.word_pppl,
    )
