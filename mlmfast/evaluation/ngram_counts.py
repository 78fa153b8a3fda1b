"""n-grams of many texts as columns: each distinct one of a text once, with its count."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from mlmfast.types import Int64Array

Units = Sequence[Hashable]
"""A text as what its n-grams are made of: words, characters or tokens."""


@dataclass(frozen=True)
class NgramCounts:
    """The n-grams of one order in T texts: e entries, one for each text and distinct n-gram of it.

    text_index, ngram_ids and counts int64[e], ordered by text; ids run from 0 to num_ngrams - 1.
    """

    text_index: Int64Array
    ngram_ids: Int64Array
    counts: Int64Array
    num_ngrams: int

    def of_texts(self, first: int, last: int) -> NgramCounts:
        """The entries of texts first to last - 1, which keep their numbers and ids."""
        begin, end = np.searchsorted(self.text_index, [first, last])
        return NgramCounts(
            self.text_index[begin:end], self.ngram_ids[begin:end], self.counts[begin:end], self.num_ngrams
        )

    def totals(self, num_texts: int) -> Int64Array:
        """int64[num_texts], n-grams of each text, counted as often as they come."""
        return np.bincount(self.text_index, self.counts, minlength=num_texts).astype(np.int64)


def ngram_counts(texts: Sequence[Units], max_order: int) -> list[NgramCounts]:
    """The n-grams of order 1 to max_order of all texts; O(N log N) for N units."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    ends = np.cumsum(lengths)
    text_at = np.repeat(np.arange(len(texts)), lengths)
    left = np.repeat(ends, lengths) - np.arange(len(text_at))  # units from a place to the end of its text
    ids: dict[Hashable, int] = {}
    units = np.fromiter(
        (ids.setdefault(unit, len(ids)) for unit in chain.from_iterable(texts)),
        dtype=np.int64,
        count=len(text_at),
    )
    num_units = max(len(ids), 1)
    orders = []
    starts, ngrams, num_ngrams = np.arange(len(text_at)), units, len(ids)
    for order in range(1, max_order + 1):
        if order > 1:
            # An n-gram is the one that is shorter by its last unit, and that unit.
            longer = left[starts] >= order
            starts, ngrams = starts[longer], ngrams[longer]
            distinct, ngrams = np.unique(ngrams * num_units + units[starts + order - 1], return_inverse=True)
            num_ngrams = len(distinct)
        entries, counts = np.unique(text_at[starts] * max(num_ngrams, 1) + ngrams, return_counts=True)
        text_index, ngram_ids = np.divmod(entries, max(num_ngrams, 1))
        orders.append(NgramCounts(text_index, ngram_ids, counts.astype(np.int64), num_ngrams))
    return orders


@dataclass(frozen=True)
class MaxCounts:
    """Of each n-gram the largest count in any one text and in any other: int64[num_ngrams] each.

    holder: the text with the largest count, -1 where no text has the n-gram.
    """

    largest: Int64Array
    holder: Int64Array
    second: Int64Array

    def others(self, entries: NgramCounts) -> Int64Array:
        """int64[e], the largest count of each entry's n-gram in the texts that are not the entry's own."""
        is_holder = self.holder[entries.ngram_ids] == entries.text_index
        return np.where(is_holder, self.second[entries.ngram_ids], self.largest[entries.ngram_ids])


def max_counts(entries: NgramCounts) -> MaxCounts:
    """The two largest counts of every n-gram; O(e log e)."""
    by_count = np.lexsort((entries.counts, entries.ngram_ids))
    ngram_ids, counts = entries.ngram_ids[by_count], entries.counts[by_count]
    is_last = np.append(ngram_ids[1:] != ngram_ids[:-1], True)[: len(ngram_ids)]
    last = np.flatnonzero(is_last)
    has_second = last[(last > 0) & (ngram_ids[last - 1] == ngram_ids[last])]
    largest, second = np.zeros((2, entries.num_ngrams), dtype=np.int64)
    holder = np.full(entries.num_ngrams, -1, dtype=np.int64)
    largest[ngram_ids[last]] = counts[last]
    holder[ngram_ids[last]] = entries.text_index[by_count][last]
    second[ngram_ids[has_second]] = counts[has_second - 1]
    return MaxCounts(largest, holder, second)
