"""Memory of the torch engine between batches: what it was after the first, whatever shapes went through."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest

import mlmfast
from mlmfast.engines import Outputs
from mlmfast.types import RowBatch

SHAPES = ((60, 12), (31, 33), (90, 11), (15, 66), (200, 5), (9, 110), (44, 23), (3, 300))
"""Rows and their length, of about 1,000 tokens each, in an order that fragments a heap."""
MOST_KEPT_MB = 16.0


def resident_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def one_text(num_rows: int, length: int) -> RowBatch:
    """A text in as many rows, another of its tokens masked in each."""
    ids = np.arange(200, 200 + length, dtype=np.int32)
    masked = (np.arange(num_rows) % length).astype(np.int32)
    each = np.arange(num_rows + 1)
    return RowBatch(
        input_ids=ids,
        text_offsets=np.array([0, length]),
        token_type_ids=None,
        row_text=np.zeros(num_rows, dtype=np.int32),
        mask_positions=masked,
        mask_offsets=each,
        target_positions=masked,
        target_ids=ids[masked],
        target_offsets=each,
        mask_token_id=4,
    )


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can return freed memory")
def test_no_memory_is_kept_from_batch_to_batch() -> None:
    with mlmfast.load(engine="torch", workers=1) as scorer:
        resident = []
        for num_rows, length in SHAPES:
            found = scorer.engine.score(one_text(num_rows, length), Outputs())
            assert len(found.log_prob) == num_rows
            resident.append(resident_mb())
    assert max(resident) - resident[0] < MOST_KEPT_MB, resident
