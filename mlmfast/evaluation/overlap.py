"""How much samples repeat each other and a pool of references: BLEU and unique n-grams as in bert-gen.

Wang & Cho 2019, "BERT has a Mouth, and It Must Speak", and its code (nyu-dl/bert-gen, bert-babble.ipynb).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlmfast.errors import InputError, SettingsError
from mlmfast.evaluation.ngram_counts import MaxCounts, NgramCounts, Units, max_counts, ngram_counts
from mlmfast.types import Int64Array

BLEU_ORDER = 4


@dataclass(frozen=True)
class PooledBleu:
    """Corpus BLEU of samples that all have the same references.

    score: 0 to 100. precisions: of order 1 up, 0 to 1. length: units of all samples; reference_length: of the
    references that are closest in length to each.
    """

    score: float
    precisions: tuple[float, ...]
    brevity_penalty: float
    length: int
    reference_length: int


class Overlap:
    """n-grams of samples and references, counted once for all figures; each text is a sequence of units."""

    def __init__(
        self, samples: Sequence[Units], references: Sequence[Units] = (), *, max_order: int = BLEU_ORDER
    ) -> None:
        """Raises SettingsError for an order below 1, InputError without samples."""
        if max_order < 1:
            raise SettingsError(f"max_order is {max_order}; expected a whole number from 1")
        if not samples:
            raise InputError("no samples, so there is nothing to evaluate; give at least one text")
        self._num_samples, self._num_references = len(samples), len(references)
        self._sample_lengths = [len(text) for text in samples]
        self._reference_lengths = Counter(len(text) for text in references)
        counted = ngram_counts([*samples, *references], max_order)
        num_texts = self._num_samples + self._num_references
        self._samples = [order.of_texts(0, self._num_samples) for order in counted]
        self._references = [order.of_texts(self._num_samples, num_texts) for order in counted]

    @cached_property
    def _sample_maxima(self) -> list[MaxCounts]:
        return [max_counts(order) for order in self._samples]

    @cached_property
    def _reference_maxima(self) -> list[MaxCounts]:
        return [max_counts(order) for order in self._references]

    def self_bleu(self) -> PooledBleu | None:
        """BLEU of each sample with all other samples as its references (Zhu et al. 2018, "Texygen"), counts
        summed over the corpus; lower is more diverse. None for a single sample, which has no others."""
        if self._num_samples < 2:
            return None
        lengths = Counter(self._sample_lengths)
        return self._bleu(
            [table.others(order) for table, order in zip(self._sample_maxima, self._samples, strict=True)],
            lambda length: closest(length, lengths - Counter([length])),
        )

    def corpus_bleu(self) -> PooledBleu:
        """BLEU of each sample with all references as its references (Yu et al. 2017, "SeqGAN").

        Raises InputError without references.
        """
        self._require_references()
        return self._bleu(
            [
                table.largest[order.ngram_ids]
                for table, order in zip(self._reference_maxima, self._samples, strict=True)
            ],
            lambda length: closest(length, self._reference_lengths),
        )

    def unique_in_samples(self) -> tuple[float | None, ...]:
        """Percent of the samples' n-grams, of order 1 up, that come once in all samples; None without any."""
        return tuple(
            percent(int(np.sum(occurrences(order) == 1)), int(order.counts.sum())) for order in self._samples
        )

    def unique_against_references(self) -> tuple[float | None, ...]:
        """Distinct n-grams of the samples that are in no reference, in percent of all n-grams of the samples
        (as bert-gen counts: a new one that comes twice counts once); None without any.

        Raises InputError without references.
        """
        self._require_references()
        return tuple(
            percent(
                int(np.sum((occurrences(sampled) > 0) & (occurrences(referred) == 0))),
                int(sampled.counts.sum()),
            )
            for sampled, referred in zip(self._samples, self._references, strict=True)
        )

    def _require_references(self) -> None:
        if not self._num_references:
            raise InputError("no references to compare the samples with; give at least one text")

    def _bleu(self, limits: list[Int64Array], closest_length: Callable[[int], int]) -> PooledBleu:
        """limits: for each order int64[e], how often the n-gram of each entry of the samples may match.

        A sample shorter than an order counts as one n-gram without a match, as in nltk 3.
        """
        matches = [
            int(np.minimum(order.counts, limit).sum())
            for order, limit in zip(self._samples, limits, strict=True)
        ]
        totals = [int(np.maximum(order.totals(self._num_samples), 1).sum()) for order in self._samples]
        precisions = tuple(found / total for found, total in zip(matches, totals, strict=True))
        length = sum(self._sample_lengths)
        reference_length = sum(
            number * closest_length(length) for length, number in Counter(self._sample_lengths).items()
        )
        penalty = (
            1.0 if length > reference_length else math.exp(1 - reference_length / length) if length else 0.0
        )
        log_mean = sum(math.log(p) for p in precisions) / len(precisions) if all(matches) else -math.inf
        return PooledBleu(100 * penalty * math.exp(log_mean), precisions, penalty, length, reference_length)


def occurrences(entries: NgramCounts) -> Int64Array:
    """int64[num_ngrams], how often each n-gram comes in all texts together."""
    return np.bincount(entries.ngram_ids, entries.counts, minlength=entries.num_ngrams).astype(np.int64)


def closest(length: int, lengths: Counter[int]) -> int:
    """The one of `lengths` that is closest to `length`, of two the shorter (Papineni et al. 2002)."""
    return min(lengths, key=lambda other: (abs(other - length), other))


def percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None
