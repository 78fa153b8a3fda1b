"""Corpus metrics as sums of statistics per hypothesis: word and character error rate, BLEU, chrF.

K statistics per hypothesis; the statistics of any selection of hypotheses are their sum, and the metric of
the selection a function of that sum alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mlmfast.errors import InputError, SettingsError
from mlmfast.extras import require
from mlmfast.rescoring.normalisation import Float64Array
from mlmfast.rescoring.recipes import recipe_named
from mlmfast.types import Int64Array


class Metric(Protocol):
    """A corpus metric, from 0 to 100 (an error rate can be more)."""

    @property
    def name(self) -> str: ...

    @property
    def larger_is_better(self) -> bool: ...

    @property
    def oracle_is_exact(self) -> bool:
        """Whether the best hypothesis of each list by itself makes the best corpus."""
        ...

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Int64Array:
        """int64[H, K], for H hypotheses of one utterance."""
        ...

    def value(self, statistics: Int64Array) -> Float64Array:
        """float64[...], the metric of the summed statistics int64[..., K]; NaN where nothing is counted."""
        ...

    def sentence_value(self, statistics: Int64Array) -> Float64Array:
        """float64[H], how good each hypothesis of one utterance is by itself, larger is better."""
        ...

    def settings(self) -> dict[str, Any]:
        """What the figure depends on."""
        ...


@dataclass(frozen=True)
class ErrorRate:
    """100 * edits / reference length over words (`wer`) or characters (`cer`, single spaces counted).

    Statistics: edits (Levenshtein distance), reference length. One reference per utterance.
    """

    unit: str = "word"
    recipe: str = "none"

    larger_is_better = False
    oracle_is_exact = True

    @property
    def name(self) -> str:
        return "wer" if self.unit == "word" else "cer"

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Int64Array:
        """Raises InputError for several references, MissingExtraError without the `nbest` extra."""
        distance = require(
            "rapidfuzz.distance.Levenshtein", extra="nbest", purpose=self.name.upper()
        ).distance
        if len(references) != 1:
            raise InputError(
                f"{len(references)} references, but {self.name} takes one; keep one, or use bleu or chrf"
            )
        reference = self._units(references[0])
        edits = [distance(self._units(text), reference) for text in hypotheses]
        return np.stack([np.array(edits, dtype=np.int64), np.full(len(edits), len(reference))], axis=1)

    def _units(self, text: str) -> Sequence[str]:
        normal = recipe_named(self.recipe)(text)
        return normal.split() if self.unit == "word" else normal

    def value(self, statistics: Int64Array) -> Float64Array:
        edits, length = np.moveaxis(np.asarray(statistics, dtype=np.float64), -1, 0)
        return np.asarray(100 * edits / np.where(length > 0, length, np.nan))

    def sentence_value(self, statistics: Int64Array) -> Float64Array:
        return -statistics[..., 0].astype(np.float64)

    def settings(self) -> dict[str, Any]:
        return {"name": self.name, "recipe": self.recipe}


@dataclass(frozen=True)
class ErrorCounts:
    """Edits of one alignment of a corpus, in words or characters."""

    substitutions: int
    deletions: int
    insertions: int
    hits: int


def error_counts(metric: ErrorRate, hypotheses: Sequence[str], references: Sequence[str]) -> ErrorCounts:
    """Kinds of edits between paired texts, by jiwer's alignment; raises MissingExtraError without it."""
    jiwer = require("jiwer", extra="nbest", purpose="error counts")
    normalise = recipe_named(metric.recipe)
    align = jiwer.process_words if metric.unit == "word" else jiwer.process_characters
    if not references:
        return ErrorCounts(0, 0, 0, 0)
    output = align([normalise(text) for text in references], [normalise(text) for text in hypotheses])
    return ErrorCounts(output.substitutions, output.deletions, output.insertions, output.hits)


METRICS = ("wer", "cer", "bleu", "chrf")


def metric_named(name: str, *, recipe: str = "none", tokenize: str = "13a") -> Metric:
    """The metric `wer`, `cer`, `bleu` or `chrf`. recipe: how hypothesis and reference are made alike;
    tokenize: sacrebleu's tokeniser, for BLEU. Raises SettingsError for an unknown name or recipe."""
    from mlmfast.rescoring.ngram_metrics import Bleu, ChrF

    recipe_named(recipe)
    if name == "wer":
        return ErrorRate("word", recipe)
    if name == "cer":
        return ErrorRate("character", recipe)
    if name == "bleu":
        return Bleu(recipe, tokenize)
    if name == "chrf":
        return ChrF(recipe)
    raise SettingsError(f"unknown metric {name!r}; expected one of {', '.join(METRICS)}")
