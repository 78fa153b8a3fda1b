"""Texts of about one length together, so that hardly anything is padding: a function of seed and step."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mlmfast.scheduling import pack
from mlmfast.training.batches import BUCKETS, epoch_order, random_of
from mlmfast.types import Int64Array


class Buckets:
    """Batches of S texts of lengths int64[S], each of at most batch_tokens tokens, padding counted (one text
    may be longer).

    Every epoch goes through all texts once: in an order of its own, then sorted by length, so that chance
    decides which texts of one length are together; its batches come in an order of their own.
    """

    def __init__(self, lengths: NDArray[np.int64], batch_tokens: int, seed: int) -> None:
        self._lengths = lengths
        self._seed = seed
        # Sorted lengths are the same in every epoch, and so are the places where batches end.
        ends = np.cumsum([len(batch) for batch in pack(lengths, batch_tokens)])
        self._cuts = ends[:-1]
        self.num_batches = len(ends)
        self._sorted_texts = lru_cache(maxsize=1)(self._sort)

    def batch(self, step: int) -> Int64Array:
        """int64[b], the texts of step `step`, counted from 1."""
        epoch, place = divmod(step - 1, self.num_batches)
        batches, order = self._sorted_texts(epoch)
        texts: Int64Array = batches[order[place]]
        return texts

    def _sort(self, epoch: int) -> tuple[list[Int64Array], Int64Array]:
        """The batches of an epoch, longest texts first, and the order in which they come."""
        texts = epoch_order(len(self._lengths), self._seed, epoch)
        texts = texts[np.argsort(-self._lengths[texts], kind="stable")]
        order = random_of(self._seed, BUCKETS, epoch).permutation(self.num_batches)
        return np.split(texts, self._cuts), order
