"""Rows into batches under a token budget."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlmfast.errors import SettingsError
from mlmfast.types import Int64Array

LEAST_SHARE_TOKENS = 256
"""A batch below this is not divided among workers: each would read all weights for little work."""


def pack(lengths: NDArray[np.int64], max_batch_tokens: int) -> list[Int64Array]:
    """Row indices of each batch, longest rows first, rows of one length in their order.

    A batch holds as many rows as fit when each counts as its longest row, at least one.
    Raises SettingsError for a budget below 1.
    """
    if max_batch_tokens < 1:
        raise SettingsError(f"max_batch_tokens is {max_batch_tokens}; expected a whole number from 1")
    order = (-lengths).argsort(kind="stable")
    batches = []
    start = 0
    while start < len(order):
        longest = max(int(lengths[order[start]]), 1)
        end = start + max(max_batch_tokens // longest, 1)
        batches.append(order[start:end])
        start = end
    return batches


def pack_for_workers(lengths: NDArray[np.int64], max_batch_tokens: int, num_workers: int) -> list[Int64Array]:
    """As `pack`, the budget lowered so that the rows give each worker a batch, where there are enough."""
    share = max(-(-int(lengths.sum()) // num_workers), LEAST_SHARE_TOKENS)
    return pack(lengths, min(max_batch_tokens, share))
