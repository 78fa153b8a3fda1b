"""Batches with values out of range: the packed engine and the native one refuse them for the same reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from graph_lanes import assert_same
from random_batches import random_batch
from tiny_models import tiny_scorer

from mlmfast.engines import Outputs
from mlmfast.errors import InputError
from mlmfast.types import RowBatch

BATCH = random_batch([5, 1, 30], 7, vocab_size=30, with_types=True, seed=5)


def changed(name: str, index: int, value: int) -> RowBatch:
    values = getattr(BATCH, name).copy()
    values[index] = value
    return replace(BATCH, **{name: values})


HOSTILE: dict[str, tuple[RowBatch, str]] = {
    "id": (changed("input_ids", 3, 320), r"input_ids\[3\] is 320, expected 0 to 319"),
    "negative id": (changed("input_ids", 3, -5), r"input_ids\[3\] is -5"),
    "type": (changed("token_type_ids", 0, 2), r"token_type_ids\[0\] is 2, expected 0 to 1"),
    "target": (changed("target_ids", 1, 10**6), r"target_ids\[1\] is 1000000"),
    "negative target": (changed("target_ids", 1, -3), r"target_ids\[1\] is -3"),
    "position": (changed("target_positions", 0, 400), r"target_positions\[0\] is 400, expected 0 to"),
    "negative position": (changed("target_positions", 0, -1), r"target_positions\[0\] is -1"),
    "masked position": (changed("mask_positions", 0, 300), r"mask_positions\[0\] is 300"),
    "text": (changed("row_text", 0, 3), r"row_text\[0\] is 3, expected 0 to 2"),
    "negative text": (changed("row_text", 0, -1), r"row_text\[0\] is -1"),
    "empty text": (changed("text_offsets", 1, 6), r"text.*1.* (is|has) 0.*, expected 1 to 64"),
    "falling": (changed("text_offsets", 1, 7), "text_offsets.* never fall"),
    "start": (changed("mask_offsets", 0, 1), "mask_offsets.* never fall"),
    "end": (changed("target_offsets", -1, 99), "target_offsets.* 99"),
    "mask": (replace(BATCH, mask_token_id=-1), r"mask_token_id\[0\] is -1, expected 0 to 319"),
    "too long": (random_batch([65], 1, vocab_size=30), r"text.*0.* (is|has) 65.*, expected 1 to 64"),
}


@pytest.mark.parametrize(("batch", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_batches_out_of_range(batch: RowBatch, reason: str) -> None:
    for engine, error in (("packed", InputError), ("native", ValueError)):
        with pytest.raises(error, match=reason):
            tiny_scorer("bert", engine=engine).engine.score(batch, Outputs())


@pytest.mark.parametrize(
    "change",
    [
        {"input_ids": BATCH.input_ids.astype(np.int64)},
        {"input_ids": np.repeat(BATCH.input_ids, 2)[::2]},
        {
            "row_text": BATCH.row_text.astype(np.int64),
            "mask_positions": BATCH.mask_positions.astype(np.int64),
        },
        {"token_type_ids": BATCH.token_type_ids.astype(np.int64)},
    ],
)
def test_other_kinds_of_integers(change: dict[str, Any]) -> None:
    engine = tiny_scorer("bert", engine="packed").engine
    expected = engine.score(BATCH, Outputs(rank=True))
    assert_same(engine.score(replace(BATCH, **change), Outputs(rank=True)), expected, bound=0)
