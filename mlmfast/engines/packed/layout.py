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
from mlmfast.scheduling.batches import distinct_targets
from mlmfast.scheduling.csr import offsets_of
from mlmfast.types import Float32Array, Int64Array, RowBatch

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
    position_skip_id: int | None

    @property
    def shares_inputs(self) -> bool:
        return self.inputs["row_scale"] is None and self.position_skip_id is None

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
            position_skip_id=self.position_skip_id,
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
        position_skip_id=spec.position_skip_id if skips_positions(batch, spec) else None,
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
    num_masks = masks_of_rows(batch, spec.mask_token_id).astype(np.float32)
    shown = (1 - num_masks / batch.row_lengths.astype(np.float32)).astype(np.float32)
    scale = np.ones_like(shown)
    np.divide(np.float32(1 - 0.15 * 0.8), shown, out=scale, where=shown > 0)
    return scale


def masks_of_rows(batch: RowBatch, id: int) -> Int64Array:
    """int64[b]: the tokens of this id in each row, those that its text has and those that masking adds."""
    is_id = batch.input_ids == id
    masked_text = np.repeat(batch.row_text, np.diff(batch.mask_offsets))  # [M]
    before = is_id[batch.text_offsets[masked_text] + batch.mask_positions]
    added = int(batch.mask_token_id == id) - before.astype(np.int64)
    return sums(is_id, batch.text_offsets)[batch.row_text] + sums(added, batch.mask_offsets)


def sums(values: NDArray[Any], offsets: Int64Array) -> Int64Array:
    """int64[rows], of each row of a CSR list of whole numbers; offsets [rows+1]."""
    return np.diff(offsets_of(values)[offsets])


def skips_positions(batch: RowBatch, spec: EncoderSpec) -> bool:
    """Whether a row may hold a token that positions do not count."""
    if spec.position != "absolute" or spec.position_skip_id < 0:
        return False
    return spec.position_skip_id == batch.mask_token_id or spec.position_skip_id in batch.input_ids
