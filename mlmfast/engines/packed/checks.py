"""What a RowBatch must keep to: on a GPU an index out of range ends the process's use of the device, and on a
CPU a negative one is another's. The same limits as csrc/batch_checks.cc."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlmfast.engines.packed.spec import EncoderSpec
from mlmfast.errors import InputError
from mlmfast.types import RowBatch


def check_batch(batch: RowBatch, spec: EncoderSpec) -> None:
    """Raises InputError that names the first value out of range."""
    check_offsets("text_offsets", batch.text_offsets, len(batch.input_ids))
    check_offsets("mask_offsets", batch.mask_offsets, len(batch.mask_positions))
    check_offsets("target_offsets", batch.target_offsets, len(batch.target_ids))
    lengths = np.diff(batch.text_offsets)
    check_values("length of text", lengths, 1, spec.max_length + 1)
    check_values("row_text", batch.row_text, 0, len(lengths))
    check_values("input_ids", batch.input_ids, 0, spec.vocab_size)
    check_values("target_ids", batch.target_ids, 0, spec.vocab_size)
    if batch.token_type_ids is not None:
        check_values("token_type_ids", batch.token_type_ids, 0, max(1, spec.type_vocab_size))
    if len(batch.mask_positions):
        check_values("mask_token_id", np.array([batch.mask_token_id]), 0, spec.vocab_size)
    row_lengths = lengths[batch.row_text]
    check_values(
        "mask_positions", batch.mask_positions, 0, np.repeat(row_lengths, np.diff(batch.mask_offsets))
    )
    check_values(
        "target_positions", batch.target_positions, 0, np.repeat(row_lengths, np.diff(batch.target_offsets))
    )


def check_offsets(name: str, offsets: NDArray[Any], end: int) -> None:
    if offsets[0] != 0 or offsets[-1] != end or (np.diff(offsets) < 0).any():
        raise InputError(f"{name}: expected offsets that never fall from 0 to {end}, got {offsets}")


def check_values(name: str, values: NDArray[Any], first: int, end: int | NDArray[Any]) -> None:
    """All first <= value < end; end of all or of each."""
    wrong = np.flatnonzero((values < first) | (values >= end))
    if len(wrong):
        index = wrong[0]
        last = np.broadcast_to(end, values.shape)[index] - 1
        raise InputError(f"{name}[{index}] is {values[index]}, expected {first} to {last}")
