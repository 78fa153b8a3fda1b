"""What an engine gets, and the plain forms it may ask for: packed rows, padded rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mlmfast.scheduling.csr import distinct, offsets_of, ranges, select
from mlmfast.types import (
    ExpandedBatch,
    Int64Array,
    MaskedRows,
    RowBatch,
    TargetOutputs,
    TokenizedTexts,
)


def row_batch(
    texts: TokenizedTexts, rows: MaskedRows, indices: Int64Array, mask_token_id: int
) -> tuple[RowBatch, Int64Array]:
    """The rows `indices` as a batch, and target_slots int64[t] of its targets."""
    used, row_text = distinct(rows.text_index[indices], texts.num_texts)
    is_all = len(indices) == rows.num_rows and (len(indices) == 1 or bool((np.diff(indices) == 1).all()))
    tokens, text_offsets = _part(texts.offsets, used, is_all=len(used) == texts.num_texts)
    masks, mask_offsets = _part(rows.mask_offsets, indices, is_all=is_all)
    targets, target_offsets = _part(rows.target_offsets, indices, is_all=is_all)
    batch = RowBatch(
        input_ids=texts.input_ids[tokens],
        text_offsets=text_offsets,
        token_type_ids=None if texts.token_type_ids is None else texts.token_type_ids[tokens],
        row_text=row_text.astype(np.int32),
        mask_positions=rows.mask_positions[masks],
        mask_offsets=mask_offsets,
        target_positions=rows.target_positions[targets],
        target_ids=rows.target_ids[targets],
        target_offsets=target_offsets,
        mask_token_id=mask_token_id,
    )
    return batch, rows.target_slots[targets]


def _part(offsets: Int64Array, indices: Int64Array, *, is_all: bool) -> tuple[Int64Array | slice, Int64Array]:
    """As `select`. is_all: indices are those of all rows, in order; nothing is copied then."""
    return (slice(None), offsets) if is_all else select(offsets, indices)


def expand(batch: RowBatch) -> ExpandedBatch:
    """Rows back to back with their masks applied, no padding."""
    tokens, offsets = select(batch.text_offsets, batch.row_text)
    lengths = np.diff(offsets)
    input_ids = batch.input_ids[tokens]
    input_ids[np.repeat(offsets[:-1], np.diff(batch.mask_offsets)) + batch.mask_positions] = (
        batch.mask_token_id
    )
    return ExpandedBatch(
        input_ids=input_ids,
        token_type_ids=None if batch.token_type_ids is None else batch.token_type_ids[tokens],
        position_ids=ranges(np.zeros(len(lengths)), lengths).astype(np.int32),
        cu_seqlens=offsets.astype(np.int32),
        max_seqlen=int(lengths.max(initial=0)),
        target_indices=np.repeat(offsets[:-1], np.diff(batch.target_offsets)) + batch.target_positions,
        target_ids=batch.target_ids,
    )


def pad(
    values: NDArray[np.int32], cu_seqlens: NDArray[np.int32], max_seqlen: int, fill: int
) -> NDArray[np.int64]:
    """int64[b, max_seqlen], packed values left-aligned in rows, `fill` after them."""
    lengths = np.diff(cu_seqlens)
    padded = np.full((len(lengths), max_seqlen), fill, dtype=np.int64)
    padded[np.arange(max_seqlen) < lengths[:, None]] = values
    return padded


def distinct_targets(target_indices: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Targets grouped by their place, so that the head sees each hidden state once.

    Returns places int64[u] (distinct, ascending), offsets int64[u+1] and order int64[t]: the targets of
    place i are order[offsets[i]:offsets[i+1]].
    """
    places, place_of = np.unique(target_indices, return_inverse=True)
    return (
        places,
        offsets_of(np.bincount(place_of, minlength=len(places))),
        np.argsort(place_of, kind="stable"),
    )


def in_batch_order(found: TargetOutputs, order: Int64Array) -> TargetOutputs:
    """Results computed in `order` int64[t] of distinct_targets, put where the batch has the targets."""
    columns = {}
    for name, column in vars(found).items():
        if column is not None:
            columns[name] = np.empty_like(column)
            columns[name][order] = column
    return TargetOutputs(**columns)


def rows_between(batch: RowBatch, first: int, last: int) -> RowBatch:
    """Rows first <= r < last of a batch, with the texts they need."""
    used, row_text = distinct(batch.row_text[first:last], len(batch.text_offsets) - 1)
    tokens, text_offsets = select(batch.text_offsets, used)
    masks = slice(batch.mask_offsets[first], batch.mask_offsets[last])
    targets = slice(batch.target_offsets[first], batch.target_offsets[last])
    return RowBatch(
        input_ids=batch.input_ids[tokens],
        text_offsets=text_offsets,
        token_type_ids=None if batch.token_type_ids is None else batch.token_type_ids[tokens],
        row_text=row_text.astype(np.int32),
        mask_positions=batch.mask_positions[masks],
        mask_offsets=batch.mask_offsets[first : last + 1] - batch.mask_offsets[first],
        target_positions=batch.target_positions[targets],
        target_ids=batch.target_ids[targets],
        target_offsets=batch.target_offsets[first : last + 1] - batch.target_offsets[first],
        mask_token_id=batch.mask_token_id,
    )


def joined(parts: Sequence[TargetOutputs]) -> TargetOutputs:
    """The results of several batches, asked for the same outputs, one after the other."""
    columns = {}
    for name, column in vars(parts[0]).items():
        if column is not None:
            columns[name] = np.concatenate([getattr(part, name) for part in parts])
    return TargetOutputs(**columns)
