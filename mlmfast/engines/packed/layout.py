"""A RowBatch brought to the device, its targets grouped by the place where each is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlmfast.engines.packed.spec import EncoderSpec
from mlmfast.kernels.encoder_inputs import Layout
from mlmfast.scheduling.batches import distinct_targets, expand
from mlmfast.scheduling.csr import offsets_of
from mlmfast.types import Float32Array, Int32Array, Int64Array, RowBatch

HostArrays = dict[str, NDArray[Any] | None]
ALIGNMENT = 16
"""Bytes at whose multiples arrays begin, so that kernels are compiled once."""


@dataclass(frozen=True)
class HostLayout:
    """What a Layout is made of, on the host: arrays by its fields' names, None where it has None."""

    inputs: HostArrays
    """The rows: texts, masks, what the embeddings need."""
    places: HostArrays
    """Where the states are read, and for which targets."""
    target_offsets: Int64Array
    """Of the places."""
    order: Int64Array
    """int64[t]: the i-th target is the batch's order[i]-th."""
    mask_token_id: int
    num_tokens: int
    longest_row: int

    @property
    def shares_inputs(self) -> bool:
        return self.inputs["row_scale"] is None and self.inputs["table_positions"] is None

    def on_device(self, device: torch.device) -> Layout:
        """Of this batch, as large as it is."""
        return self.layout(on_device(self.inputs | self.places, device))

    def layout(self, tensors: Mapping[str, Any]) -> Layout:
        """Of all arrays as tensors."""
        return Layout(
            **tensors,
            mask_token_id=self.mask_token_id,
            num_tokens=self.num_tokens,
            longest_row=self.longest_row,
            shares_inputs=self.shares_inputs,
        )


def host_layout(batch: RowBatch, spec: EncoderSpec) -> HostLayout:
    """A checked batch as the encoder reads it."""
    lengths = batch.row_lengths
    row_starts = offsets_of(lengths)
    places, target_offsets, order = distinct_targets(
        np.repeat(row_starts[:-1], np.diff(batch.target_offsets)) + batch.target_positions
    )
    types = batch.token_type_ids
    inputs: HostArrays = {
        "text_ids": batch.input_ids.astype(np.int32, copy=False),
        "text_types": None if types is None else types.astype(np.int32, copy=False),
        "text_offsets": batch.text_offsets.astype(np.int32),
        "row_text": batch.row_text.astype(np.int32, copy=False),
        "row_starts": row_starts.astype(np.int32),
        "mask_positions": batch.mask_positions.astype(np.int32, copy=False),
        "mask_offsets": batch.mask_offsets.astype(np.int32),
        "row_scale": dropout_scale(batch, spec) if spec.token_dropout else None,
        "table_positions": counted_positions(batch, spec) if skips_positions(batch, spec) else None,
    }
    return HostLayout(
        inputs=inputs,
        places={
            "place_token": places.astype(np.int32),
            "place_row": (np.searchsorted(row_starts, places, side="right") - 1).astype(np.int32),
            "target_ids": batch.target_ids[order].astype(np.int64),
            "target_offsets": target_offsets,
        },
        target_offsets=target_offsets,
        order=order,
        mask_token_id=batch.mask_token_id,
        num_tokens=int(row_starts[-1]),
        longest_row=int(lengths.max(initial=0)),
    )


def on_device(arrays: HostArrays, device: torch.device) -> dict[str, Any]:
    """Arrays as tensors on the device, by one copy that the host does not wait for."""
    return views(in_one_buffer(arrays, device).to(device, non_blocking=True), arrays)


def in_one_buffer(arrays: HostArrays, device: torch.device) -> Tensor:
    """uint8, on the host: the arrays behind one another. Pinned for a GPU; torch reuses such memory once the
    copies from it are done."""
    starts = buffer_starts(arrays)
    buffer = torch.empty(starts[-1], dtype=torch.uint8, pin_memory=device.type == "cuda")
    for array, start in zip(arrays.values(), starts, strict=False):
        if array is not None:
            buffer.numpy()[start : start + array.nbytes] = np.ascontiguousarray(array).view(np.uint8)
    return buffer


def views(buffer: Tensor, arrays: HostArrays) -> dict[str, Any]:
    """Parts of a buffer, or of a copy of it on the device, as Tensors of the arrays' types; None stays."""
    tensors: dict[str, Tensor | None] = dict.fromkeys(arrays)
    for (name, array), start in zip(arrays.items(), buffer_starts(arrays), strict=False):
        if array is not None:
            dtype = torch.from_numpy(array[:0]).dtype
            tensors[name] = buffer[start : start + array.nbytes].view(dtype)
    return tensors


def buffer_starts(arrays: HostArrays) -> list[int]:
    """Of each array its first byte, and the end."""
    sizes = [0 if array is None else array.nbytes for array in arrays.values()]
    return [0, *np.cumsum([-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]).tolist()]


def dropout_scale(batch: RowBatch, spec: EncoderSpec) -> Float32Array:
    """float32[b], what token dropout multiplies the words of a row by: (1 - 0.15 * 0.8) / (1 - its share of
    masks) (Lin et al. 2023, ESM-2, trained with 0.15 * 0.8 of the tokens masked); 1 where all are masks."""
    rows = expand(batch)
    num_tokens = np.diff(rows.cu_seqlens).astype(np.float32)
    is_mask = rows.input_ids == spec.mask_token_id
    num_masks = np.add.reduceat(is_mask, rows.cu_seqlens[:-1], dtype=np.float32)
    shown = (1 - num_masks / num_tokens).astype(np.float32)
    scale = np.ones_like(shown)
    np.divide(np.float32(1 - 0.15 * 0.8), shown, out=scale, where=shown > 0)
    return scale


def skips_positions(batch: RowBatch, spec: EncoderSpec) -> bool:
    """Whether a row may hold a token that positions do not count."""
    if spec.position != "absolute" or spec.position_skip_id < 0:
        return False
    return spec.position_skip_id == batch.mask_token_id or spec.position_skip_id in batch.input_ids


def counted_positions(batch: RowBatch, spec: EncoderSpec) -> Int32Array:
    """int32[n], rows of the position table. Tokens of the skipped id are not counted, and stand at the row
    before the first."""
    rows = expand(batch)
    is_counted = rows.input_ids != spec.position_skip_id
    before = offsets_of(is_counted)[:-1]
    counted = before - np.repeat(before[rows.cu_seqlens[:-1]], np.diff(rows.cu_seqlens))
    return (spec.position_offset + np.where(is_counted, counted, -1)).astype(np.int32)
