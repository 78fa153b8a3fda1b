"""Rows of every kind in one batch of the native engine: the bits that each has alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from random_batches import random_batch
from tiny_models import MODELS, NATIVE, NATIVE_BOUNDS, PACKED_ATTENTION, with_heads_of_32

import mlmfast
from mlmfast import _core
from mlmfast.engines import Outputs
from mlmfast.scheduling.batches import joined, rows_between

BATCH = random_batch([1, 2, 3, 13, 20], 60, vocab_size=25, masked=0.1)


def test_the_batch_has_rows_of_every_kind() -> None:
    num_masks, num_targets = np.diff(BATCH.mask_offsets), np.diff(BATCH.target_offsets)
    for masks in (num_masks == 0, num_masks == 1, num_masks > 1):
        for targets in (num_targets == 0, num_targets == 1, num_targets > 1):
            assert (masks & targets).any()


@pytest.mark.parametrize("precision", NATIVE_BOUNDS)
@pytest.mark.parametrize("isa", _core.available_isas())
@pytest.mark.parametrize("name", NATIVE[:10])
def test_rows_of_every_kind(name: str, isa: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_rows_are_alone(MODELS / name, isa, precision, monkeypatch)


@pytest.mark.parametrize("precision", NATIVE_BOUNDS)
@pytest.mark.parametrize("isa", _core.available_isas())
@pytest.mark.parametrize("name", PACKED_ATTENTION)
def test_rows_of_every_kind_with_heads_of_32(
    name: str, isa: str, precision: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert_rows_are_alone(with_heads_of_32(name, tmp_path), isa, precision, monkeypatch)


def assert_rows_are_alone(folder: Path, isa: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with mlmfast.load(folder, engine="native", precision="float32", workers=1) as scorer:
        exact = scorer.engine.score(BATCH, Outputs())
    monkeypatch.setenv("MLMFAST_ISA", isa)
    with mlmfast.load(folder, engine="native", precision=precision, workers=1) as scorer:
        together = scorer.engine.score(BATCH, Outputs(entropy=True))
        alone = joined(
            [
                scorer.engine.score(rows_between(BATCH, row, row + 1), Outputs(entropy=True))
                for row in range(BATCH.num_rows)
            ]
        )
    np.testing.assert_array_equal(together.log_prob, alone.log_prob)
    np.testing.assert_array_equal(together.entropy, alone.entropy)
    assert np.abs(together.log_prob - exact.log_prob).max() < NATIVE_BOUNDS[precision]
