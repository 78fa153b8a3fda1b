"""BLEU and chrF: statistics by sacrebleu, and its formulas over many sums of statistics at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mlmfast.errors import SettingsError
from mlmfast.extras import require
from mlmfast.rescoring.normalisation import Float64Array
from mlmfast.rescoring.recipes import recipe_named
from mlmfast.types import BoolArray, Int64Array

BLEU_ORDER = 4
CHRF_BETA = 2


def sacrebleu_statistics(
    metric: Any, recipe: str, hypotheses: Sequence[str], references: Sequence[str]
) -> Int64Array:
    """int64[H, K] of H hypotheses of one utterance, whose references are prepared once."""
    normalise = recipe_named(recipe)
    prepare = metric._preprocess_segment
    info = metric._extract_reference_info([prepare(normalise(text)) for text in references])
    rows = [metric._compute_segment_statistics(prepare(normalise(text)), info) for text in hypotheses]
    return np.array(rows, dtype=np.int64).reshape(len(hypotheses), -1)


@dataclass(frozen=True)
class Bleu:
    """Corpus BLEU (Papineni et al. 2002) as sacrebleu computes it: order 4, `exp` smoothing.

    Statistics: hypothesis length, closest reference length, matches of order 1 to 4, n-grams of order 1 to 4.
    A sentence by itself is judged by its effective order.
    """

    recipe: str = "none"
    tokenize: str = "13a"

    name = "bleu"
    larger_is_better = True
    oracle_is_exact = False

    @cached_property
    def _sacrebleu(self) -> Any:
        sacrebleu = require("sacrebleu.metrics", extra="nbest", purpose="BLEU")
        if self.tokenize not in sacrebleu.BLEU.TOKENIZERS:
            raise SettingsError(
                f"unknown tokenize={self.tokenize!r}; expected one of {', '.join(sacrebleu.BLEU.TOKENIZERS)}"
            )
        return sacrebleu.BLEU(tokenize=self.tokenize)

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Int64Array:
        """Raises MissingExtraError without the `nbest` extra, SettingsError for an unknown tokeniser."""
        return sacrebleu_statistics(self._sacrebleu, self.recipe, hypotheses, references)

    def value(self, statistics: Int64Array) -> Float64Array:
        return bleu(statistics)

    def sentence_value(self, statistics: Int64Array) -> Float64Array:
        return bleu(statistics, effective_order=True)

    def settings(self) -> dict[str, Any]:
        return {"name": self.name, "recipe": self.recipe, "tokenize": self.tokenize}


@dataclass(frozen=True)
class ChrF:
    """Corpus chrF (Popović 2015) as sacrebleu computes it: characters to order 6, beta 2, no words.

    Statistics: for each order the n-grams of the hypothesis, of the reference, and those they share.
    """

    recipe: str = "none"

    name = "chrf"
    larger_is_better = True
    oracle_is_exact = False

    @cached_property
    def _sacrebleu(self) -> Any:
        return require("sacrebleu.metrics", extra="nbest", purpose="chrF").CHRF(beta=CHRF_BETA)

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Int64Array:
        """Raises MissingExtraError without the `nbest` extra."""
        return sacrebleu_statistics(self._sacrebleu, self.recipe, hypotheses, references)

    def value(self, statistics: Int64Array) -> Float64Array:
        return chrf(statistics)

    def sentence_value(self, statistics: Int64Array) -> Float64Array:
        return chrf(statistics)

    def settings(self) -> dict[str, Any]:
        return {"name": self.name, "recipe": self.recipe}


def bleu(statistics: Int64Array, *, effective_order: bool = False) -> Float64Array:
    """float64[...] in 0..100 for int64[..., 10].

    An order without matches counts as half a match, the next one as a quarter, and so on (`exp`). An order
    without n-grams makes the score 0, or is left out under effective_order.
    """
    numbers = np.asarray(statistics, dtype=np.float64)
    length, reference_length = numbers[..., 0], numbers[..., 1]
    matches, totals = numbers[..., 2 : 2 + BLEU_ORDER], numbers[..., 2 + BLEU_ORDER :]
    counted = np.logical_and.accumulate(totals > 0, axis=-1)
    smoothing = 0.5 ** np.cumsum((matches == 0) & counted, axis=-1)
    log_precisions = np.log(
        np.where(matches > 0, matches, smoothing) / np.where(counted, totals, 1),
        where=counted,
        out=np.zeros_like(totals),
    )
    order = counted.sum(axis=-1)
    scored: BoolArray = matches.any(axis=-1) & ((order == BLEU_ORDER) | effective_order)
    brevity = np.minimum(1 - reference_length / np.maximum(length, 1), 0)
    return np.where(scored, 100 * np.exp(brevity + log_precisions.sum(axis=-1) / np.maximum(order, 1)), 0.0)


def chrf(statistics: Int64Array) -> Float64Array:
    """float64[...] in 0..100 for int64[..., 18]: F of the mean precision and recall over the orders that
    both sides have."""
    numbers = np.asarray(statistics, dtype=np.float64)
    hypothesis, reference, shared = numbers[..., 0::3], numbers[..., 1::3], numbers[..., 2::3]
    counted = (hypothesis > 0) & (reference > 0)
    order = np.maximum(counted.sum(axis=-1), 1)
    precision = (shared / np.maximum(hypothesis, 1) * counted).sum(axis=-1) / order
    recall = (shared / np.maximum(reference, 1) * counted).sum(axis=-1) / order
    factor = CHRF_BETA**2
    denominator = factor * precision + recall
    f_score = (1 + factor) * precision * recall / np.where(denominator > 0, denominator, 1)
    return np.asarray(100 * f_score)
