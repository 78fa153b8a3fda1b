"""How many tokens a batch may have now: other processes take the device's memory and give it back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import numpy as np
import torch

from mlmfast.engines.packed.memory import ran_out_of_memory
from mlmfast.errors import SettingsError
from mlmfast.scheduling.batches import joined, rows_between
from mlmfast.types import RowBatch, TargetOutputs

logger = logging.getLogger(__name__)

PATIENCE = 64
"""Batches that fit before larger ones are tried again, one of which fails if memory is as short as before."""


class TokenBudget:
    """No limit at first. A batch that the memory does not hold is halved, and so are later ones beforehand;
    the limit doubles after every PATIENCE batches that fit, until it is above all that failed. For several
    threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limit: int | None = None
        self._failed = 0
        """Tokens of the largest batch that did not fit since there was no limit."""
        self._num_fitting = 0
        """Batches since the limit changed."""

    @property
    def limit(self) -> int | None:
        """The most tokens of a batch of several rows; None where there is no limit."""
        return self._limit

    def score(self, batch: RowBatch, score: Callable[[RowBatch], TargetOutputs]) -> TargetOutputs:
        """score(batch), or where the memory or the limit does not hold it, the results of its halves, each in
        the same way. Raises SettingsError where one row is too much."""
        limit = self._limit
        if limit is not None and batch.num_rows > 1 and batch.num_tokens > limit:
            return self._by_halves(halves(batch), score)
        try:
            found = score(batch)
        except RuntimeError as error:
            if not ran_out_of_memory(error):
                raise
            if batch.num_rows < 2:
                raise SettingsError(
                    f"the device's memory does not hold one row of {batch.num_tokens} tokens: end what else "
                    "runs on it, ask for precision='bfloat16', or use device='cpu'"
                ) from error
        else:
            self._fits()
            return found
        # Here, as the error would keep the tensors of what failed.
        torch.cuda.empty_cache()
        parts = halves(batch)
        self._does_not_fit(batch.num_tokens, max(part.num_tokens for part in parts))
        return self._by_halves(parts, score)

    def _by_halves(
        self, parts: tuple[RowBatch, RowBatch], score: Callable[[RowBatch], TargetOutputs]
    ) -> TargetOutputs:
        return joined([self.score(part, score) for part in parts])

    def _does_not_fit(self, failed: int, limit: int) -> None:
        """failed, limit: tokens of the batch, and of the larger of its halves."""
        with self._lock:
            self._failed = max(self._failed, failed)
            self._limit = limit if self._limit is None else min(self._limit, limit)
            self._num_fitting = 0
        logger.info("the device's memory does not hold a batch of %d tokens; from now on %d", failed, limit)

    def _fits(self) -> None:
        with self._lock:
            if self._limit is None:
                return
            self._num_fitting += 1
            if self._num_fitting < PATIENCE:
                return
            self._num_fitting = 0
            self._limit *= 2
            if self._limit > self._failed:
                self._limit, self._failed = None, 0


def halves(batch: RowBatch) -> tuple[RowBatch, RowBatch]:
    """Two batches of at least one row each, as equal in tokens as rows in their order allow."""
    ends = np.cumsum(batch.row_lengths)
    middle = 1 + int(np.argmin(np.abs(2 * ends[:-1] - ends[-1])))
    return rows_between(batch, 0, middle), rows_between(batch, middle, batch.num_rows)
