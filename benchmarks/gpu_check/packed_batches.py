"""Masked copies in batches for the peers of the packed engine, on their way to the device and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from contestant_batches import batches, read_tokenizer
from numpy.typing import NDArray
from torch import Tensor

Scores = NDArray[np.float32]
Copy = tuple[NDArray[np.int64], int, int]
"""The ids of a row, the position of its mask, and what stood there."""


def pinned(*arrays: NDArray[Any], device: str) -> tuple[Tensor, ...]:
    tensors = tuple(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays)
    return tensors if device == "cpu" else tuple(tensor.pin_memory() for tensor in tensors)


def on(device: str, batch: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(tensor.to(device, non_blocking=True) for tensor in batch)


def in_slots(found: Sequence[Tensor], slots: NDArray[np.int64] | None = None) -> Scores:
    """Log-probabilities of batches, each where its slot says; in their order if there are none."""
    values = torch.cat(list(found)).float().cpu().numpy()
    if slots is None:
        return values
    ordered = np.empty_like(values)
    ordered[slots] = values
    return ordered


def masked_copies(folder: str, texts: Sequence[str]) -> Iterator[Copy]:
    """In the order of the texts and their tokens."""
    tokenizer, mask_id = read_tokenizer(folder)
    for encoding in tokenizer.encode_batch(list(texts)):
        for batch in batches([encoding], mask_id, max_batch_tokens=len(encoding.ids) ** 2):  # all copies
            yield from zip(batch.input_ids, batch.positions, batch.target_ids, strict=True)


def groups(copies: Iterator[Copy], max_tokens: int) -> Iterator[list[Copy]]:
    """Of as many copies as fit, padded to the longest of them, and of at least one."""
    group: list[Copy] = []
    longest = 0
    for copy in copies:
        longest = max(longest, len(copy[0]))
        if group and longest * (len(group) + 1) > max_tokens:
            yield group
            group, longest = [], len(copy[0])
        group.append(copy)
    if group:
        yield group


def padded_batches(copies: Iterator[Copy], max_tokens: int) -> Iterator[tuple[NDArray[Any], ...]]:
    """input_ids and attention_mask [b, longest], positions and target_ids [b]."""
    for group in groups(copies, max_tokens):
        lengths = np.array([len(row) for row, _, _ in group])
        mask = np.arange(lengths.max()) < lengths[:, None]
        input_ids = np.zeros(mask.shape, dtype=np.int64)
        input_ids[mask] = np.concatenate([row for row, _, _ in group])
        positions, target_ids = (np.array([copy[i] for copy in group]) for i in (1, 2))
        yield input_ids, mask.astype(np.int64), positions, target_ids
