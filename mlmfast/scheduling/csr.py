"""Small helpers for CSR columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlmfast.types import Int64Array


def offsets_of(counts: NDArray[Any]) -> Int64Array:
    """int64[k+1], the running sum of k counts from 0."""
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    counts.cumsum(out=offsets[1:])
    return offsets


def ranges(starts: NDArray[Any], counts: NDArray[Any]) -> Int64Array:
    """The concatenation of arange(start, start + count) over k pairs, int64[sum of counts]."""
    counts = np.asarray(counts, dtype=np.int64)
    begins = offsets_of(counts)
    return np.arange(begins[-1]) + np.repeat(np.asarray(starts, dtype=np.int64) - begins[:-1], counts)


def select(offsets: Int64Array, indices: NDArray[Any]) -> tuple[Int64Array, Int64Array]:
    """The elements of the rows `indices` of a CSR column, and the offsets of the selection."""
    starts = offsets[indices]
    counts = offsets[indices + 1] - starts
    selected = offsets_of(counts)
    return np.arange(selected[-1]) + (starts - selected[:-1]).repeat(counts), selected


def distinct(values: NDArray[Any], size: int) -> tuple[Int64Array, Int64Array]:
    """The distinct ones among k whole numbers below `size`, ascending, and the place of each of the k among
    them: np.unique with its inverse, without sorting."""
    present = np.zeros(size, dtype=bool)
    present[values] = True
    found = present.nonzero()[0]
    return found, found.searchsorted(values)


def runs(keys: Int64Array) -> Int64Array:
    """int64[r+1], the offsets of the runs of equal ones among k keys."""
    begins = np.ones(len(keys) + 1, dtype=bool)
    begins[1:-1] = keys[1:] != keys[:-1]
    return begins.nonzero()[0]
