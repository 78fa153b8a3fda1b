"""Small helpers for CSR columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlmfast.types import Int64Array


def offsets_of(counts: NDArray[Any]) -> Int64Array:
    """int64[k+1], the running sum of k counts from 0."""
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def ranges(starts: NDArray[Any], counts: NDArray[Any]) -> Int64Array:
    """The concatenation of arange(start, start + count) over k pairs, int64[sum of counts]."""
    counts = np.asarray(counts, dtype=np.int64)
    begins = offsets_of(counts)
    return np.arange(begins[-1]) + np.repeat(np.asarray(starts, dtype=np.int64) - begins[:-1], counts)


def select(offsets: Int64Array, indices: NDArray[Any]) -> tuple[Int64Array, Int64Array]:
    """The elements of the rows `indices` of a CSR column, and the offsets of the selection."""
    counts = np.diff(offsets)[indices]
    return ranges(offsets[:-1][indices], counts), offsets_of(counts)
