"""Identical masked rows computed once: two texts that differ only at the masked place share a row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlmfast.scheduling.csr import distinct, offsets_of, ranges, select
from mlmfast.types import Int64Array, MaskedRows, TokenizedTexts

MAX_COMPARED = 1 << 22
"""Tokens compared at a time when equal hashes are checked, so that memory stays bounded."""


def share_rows(texts: TokenizedTexts, rows: MaskedRows, mask_token_id: int) -> MaskedRows:
    """The distinct rows, each with the targets of all its copies; order of first appearance.

    Rows are grouped by a hash of their masked tokens and then compared token by token, so a shared row
    is always an identical one.
    """
    if rows.num_rows < 2:
        return rows
    hashes = _row_hashes(texts, rows, mask_token_id)
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    owner = first[group]
    copies = np.flatnonzero(owner != np.arange(rows.num_rows))
    if len(copies) == 0:
        return rows
    differ = ~_equal_rows(texts, rows, copies, owner[copies], mask_token_id)
    owner[copies[differ]] = copies[differ]

    kept, row_of = distinct(owner, rows.num_rows)
    target_counts = np.diff(rows.target_offsets)
    order = np.argsort(np.repeat(row_of, target_counts), kind="stable")
    masks, mask_offsets = select(rows.mask_offsets, kept)
    return MaskedRows(
        text_index=rows.text_index[kept],
        mask_positions=rows.mask_positions[masks],
        mask_offsets=mask_offsets,
        target_positions=rows.target_positions[order],
        target_ids=rows.target_ids[order],
        target_slots=rows.target_slots[order],
        target_offsets=offsets_of(np.bincount(row_of, weights=target_counts).astype(np.int64)),
    )


def _row_hashes(texts: TokenizedTexts, rows: MaskedRows, mask_token_id: int) -> NDArray[np.uint64]:
    """uint64[R]: the sum over a row of a hash of (position, id, type), so that a mask is a difference."""
    lengths = texts.lengths
    position = ranges(np.zeros(len(lengths)), lengths)
    types = texts.token_type_ids
    token_hash = _mix(position, texts.input_ids, types)
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(token_hash, dtype=np.uint64)])
    text_hash = sums[texts.offsets[1:]] - sums[texts.offsets[:-1]]

    masked = np.repeat(texts.offsets[rows.text_index], np.diff(rows.mask_offsets)) + rows.mask_positions
    mask_ids = np.full(len(masked), mask_token_id, dtype=np.int32)
    change = (
        _mix(rows.mask_positions, mask_ids, None if types is None else types[masked]) - token_hash[masked]
    )
    changes = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(change, dtype=np.uint64)])
    row_change = changes[rows.mask_offsets[1:]] - changes[rows.mask_offsets[:-1]]
    row_hash: NDArray[np.uint64] = text_hash[rows.text_index] + row_change
    return row_hash


def _mix(
    position: NDArray[np.int32] | Int64Array, ids: NDArray[np.int32], types: NDArray[np.int32] | None
) -> NDArray[np.uint64]:
    """splitmix64's finaliser over (position, type, id); wraps modulo 2^64."""
    key = (position.astype(np.uint64) << np.uint64(32)) ^ ids.astype(np.uint64)
    if types is not None:
        key ^= types.astype(np.uint64) << np.uint64(60)
    key = key * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x632BE59BD9B4E019)
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = key ^ (key >> np.uint64(31))
    return mixed


def _equal_rows(
    texts: TokenizedTexts, rows: MaskedRows, left: Int64Array, right: Int64Array, mask_token_id: int
) -> NDArray[np.bool_]:
    """bool[k]: whether row left[i] and row right[i] hold the same tokens."""
    lengths = texts.lengths[rows.text_index]
    equal: NDArray[np.bool_] = lengths[left] == lengths[right]
    pairs = np.flatnonzero(equal)
    chunk_of = np.cumsum(lengths[left[pairs]]) // MAX_COMPARED
    for chunk in np.split(pairs, np.flatnonzero(np.diff(chunk_of)) + 1):
        same = np.ones(int(lengths[left[chunk]].sum()), dtype=bool)
        sides = [_masked_tokens(texts, rows, side[chunk], mask_token_id) for side in (left, right)]
        for a, b in zip(*sides, strict=True):
            same &= a == b
        differing = np.repeat(chunk, lengths[left[chunk]])[~same]
        equal[differing] = False
    return equal


def _masked_tokens(
    texts: TokenizedTexts, rows: MaskedRows, indices: Int64Array, mask_token_id: int
) -> list[NDArray[np.int32]]:
    """Ids, and types where there are any, of the given rows back to back, masks applied."""
    text = rows.text_index[indices]
    tokens, offsets = select(texts.offsets, text)
    ids = texts.input_ids[tokens]
    masks, mask_offsets = select(rows.mask_offsets, indices)
    ids[np.repeat(offsets[:-1], np.diff(mask_offsets)) + rows.mask_positions[masks]] = mask_token_id
    return [ids] if texts.token_type_ids is None else [ids, texts.token_type_ids[tokens]]
