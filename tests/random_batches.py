"""Batches of random texts, rows, masks and targets, and their rows in plain lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlmfast.scheduling.csr import offsets_of
from mlmfast.types import RowBatch


@dataclass(frozen=True)
class PlainRow:
    ids: list[int]
    """Masks applied."""
    types: list[int]
    targets: list[tuple[int, int]]
    """Position and id."""


def random_batch(
    text_lengths: Sequence[int],
    num_rows: int,
    *,
    vocab_size: int = 50,
    mask_id: int = 4,
    with_types: bool = False,
    masked: float = 0.3,
    most_targets: int = 4,
    seed: int = 0,
) -> RowBatch:
    """At least one row of each text, in no order. masked: share of tokens. Up to most_targets targets in a
    row, in no order, several of them perhaps at one place."""
    rng = np.random.default_rng(seed)
    num_tokens, num_texts = sum(text_lengths), len(text_lengths)
    texts = np.concatenate([np.arange(num_texts), rng.integers(num_texts, size=num_rows - num_texts)])
    row_text = rng.permutation(texts).astype(np.int32)
    lengths = np.array(text_lengths)[row_text]
    masks = [np.flatnonzero(rng.random(length) < masked) for length in lengths]
    targets = [rng.integers(length, size=rng.integers(most_targets + 1)) for length in lengths]
    target_offsets = offsets_of(np.array([len(t) for t in targets]))
    return RowBatch(
        input_ids=rng.integers(vocab_size, size=num_tokens, dtype=np.int32),
        text_offsets=offsets_of(np.array(text_lengths)),
        token_type_ids=rng.integers(2, size=num_tokens, dtype=np.int32) if with_types else None,
        row_text=row_text,
        mask_positions=np.concatenate(masks).astype(np.int32),
        mask_offsets=offsets_of(np.array([len(m) for m in masks])),
        target_positions=np.concatenate(targets).astype(np.int32),
        target_ids=rng.integers(vocab_size, size=int(target_offsets[-1]), dtype=np.int32),
        target_offsets=target_offsets,
        mask_token_id=mask_id,
    )


def targets_everywhere(lengths: list[int]) -> RowBatch:
    """A row of each text, all of it masked and asked for: the most that a batch can ask."""
    batch = random_batch(lengths, len(lengths), vocab_size=30, masked=1.0)
    positions = np.concatenate([np.arange(length, dtype=np.int32) for length in lengths])
    return replace(
        batch,
        row_text=np.arange(len(lengths), dtype=np.int32),
        target_positions=positions,
        target_ids=np.zeros_like(positions),
        target_offsets=batch.text_offsets,
    )


def plain_rows(batch: RowBatch) -> list[PlainRow]:
    rows = []
    for r, text in enumerate(batch.row_text):
        tokens = range(batch.text_offsets[text], batch.text_offsets[text + 1])
        ids = [int(batch.input_ids[token]) for token in tokens]
        for position in batch.mask_positions[batch.mask_offsets[r] : batch.mask_offsets[r + 1]]:
            ids[position] = batch.mask_token_id
        types = batch.token_type_ids
        own = range(batch.target_offsets[r], batch.target_offsets[r + 1])
        rows.append(
            PlainRow(
                ids=ids,
                types=[0 if types is None else int(types[token]) for token in tokens],
                targets=[(int(batch.target_positions[t]), int(batch.target_ids[t])) for t in own],
            )
        )
    return rows
