"""The lists that have references, as columns: what tuning and evaluation work on.

L lists, N hypotheses in all, F features, K statistics of a metric.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mlmfast.errors import InputError, SettingsError
from mlmfast.rescoring.combination import Missing, can_win, check_features, weighted_sum
from mlmfast.rescoring.lists import NBestList
from mlmfast.rescoring.metrics import Metric
from mlmfast.rescoring.normalisation import Float64Array
from mlmfast.scheduling.csr import offsets_of, select
from mlmfast.types import Int64Array


@dataclass(frozen=True)
class NBestCorpus:
    """ids of L lists; features float64[N, F], statistics int64[N, K]; offsets int64[L+1]. No list is empty.

    num_without_reference: lists seen, but left out here.
    """

    ids: tuple[str, ...]
    features: Float64Array
    statistics: Int64Array
    offsets: Int64Array
    num_without_reference: int = 0

    @property
    def num_lists(self) -> int:
        return len(self.ids)

    @property
    def list_index(self) -> Int64Array:
        """int64[N], the list of each hypothesis."""
        return np.repeat(np.arange(self.num_lists), np.diff(self.offsets))

    def subset(self, lists: NDArray[np.int64]) -> NBestCorpus:
        """The lists at `lists`, int64[*], in that order."""
        elements, offsets = select(self.offsets, lists)
        ids = tuple(self.ids[index] for index in lists)
        return replace(
            self,
            ids=ids,
            features=self.features[elements],
            statistics=self.statistics[elements],
            offsets=offsets,
        )

    def contender_indices(self, missing: Missing) -> Int64Array:
        """int64[*], the hypotheses that some weights put first, at least one of each list, in order."""
        return np.concatenate(
            [
                np.flatnonzero(can_win(self.features[start:end], missing=missing)) + start
                for start, end in zip(self.offsets[:-1], self.offsets[1:], strict=True)
            ]
            or [np.zeros(0, dtype=np.int64)]
        )

    def contenders(self, missing: Missing) -> NBestCorpus:
        """Only the hypotheses at `contender_indices`."""
        keep = self.contender_indices(missing)
        counts = np.bincount(self.list_index[keep], minlength=self.num_lists)
        # A list's only contender wins whatever its features.
        features = np.nan_to_num(self.features[keep], nan=0.0)
        return replace(self, features=features, statistics=self.statistics[keep], offsets=offsets_of(counts))

    def winners(self, weights: Float64Array) -> Int64Array:
        """int64[L], the best hypothesis of each list under weights float64[F], as an index into the N.

        Raises SettingsError where a score is missing: take `contenders` first.
        """
        totals = weighted_sum(self.features, weights)
        if np.isnan(totals).any():
            raise SettingsError("some hypotheses lack a score; take the contenders of the corpus first")
        return first_largest(totals, self.offsets)

    def first_pass(self) -> Int64Array:
        """int64[L], the first pass's best of each list."""
        return self.offsets[:-1]

    def oracle(self, metric: Metric) -> Int64Array:
        """int64[L], the hypothesis of each list that is best by itself, the lowest number among equals.

        Exact for error rates; for BLEU and chrF greedy by sentence, a lower bound of the best corpus.
        """
        return first_largest(metric.sentence_value(self.statistics), self.offsets)


def first_largest(values: Float64Array, offsets: Int64Array) -> Int64Array:
    """int64[L], the index of the first largest of each list's values, float64[N]."""
    if len(offsets) == 1:
        return np.zeros(0, dtype=np.int64)
    largest = np.maximum.reduceat(values, offsets[:-1])
    at_largest = np.flatnonzero(values == np.repeat(largest, np.diff(offsets)))
    return at_largest[np.searchsorted(at_largest, offsets[:-1])]


class CorpusBuilder:
    """A corpus made list by list; of a list only its features and statistics are kept."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._ids: list[str] = []
        self._features: list[Float64Array] = []
        self._statistics: list[Int64Array] = []
        self._num_without_reference = 0

    def add(self, nbest: NBestList, matrix: Float64Array) -> None:
        """A list with its feature matrix, float64[H, F]; one without a reference is counted only.

        A list without hypotheses stands for the empty text, so that its reference is not lost from the
        metric. Raises InputError, placed at the list, for infinite features and references the metric does
        not take.
        """
        if not nbest.references:
            self._num_without_reference += 1
            return
        texts = [hypothesis.text for hypothesis in nbest.hypotheses]
        try:
            check_features(matrix, np.zeros(matrix.shape[-1]))
            counts = self._metric.statistics(texts or [""], nbest.references)
        except InputError as error:
            line = "" if nbest.line is None else f", line {nbest.line}"
            raise InputError(str(error), where=f"list {nbest.id!r}{line}") from error
        self._ids.append(nbest.id)
        self._features.append(matrix if texts else np.zeros((1, matrix.shape[-1])))
        self._statistics.append(counts)

    def corpus(self) -> NBestCorpus:
        """The lists so far. Raises InputError if none has a reference."""
        if not self._ids:
            raise InputError("no list has a reference; give --references FILE")
        return NBestCorpus(
            tuple(self._ids),
            np.concatenate(self._features),
            np.concatenate(self._statistics),
            offsets_of(np.array([len(rows) for rows in self._statistics])),
            self._num_without_reference,
        )


def nbest_corpus(lists: Iterable[tuple[NBestList, Float64Array]], metric: Metric) -> NBestCorpus:
    """The lists with their feature matrices, float64[H, F]; see `CorpusBuilder`."""
    builder = CorpusBuilder(metric)
    for nbest, matrix in lists:
        builder.add(nbest, matrix)
    return builder.corpus()
