"""Logits a tile of rows and classes at a time, in at least float32, in memory bounded by bytes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

LOGITS_SHARE = 20
"""All scratch memory takes at most one part in this of the whole logits' bytes,"""
MIN_BYTES, MAX_BYTES = 1 << 22, 1 << 26
"""but no less and no more than this (one row and one class at least)."""
MAX_ROWS = 512
"""Enough for a matrix product at full speed."""
LIVE_TILES = 4
"""Tensors of a tile's size alive at once."""


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 for float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def tile_shape(num_rows: int, weight: Tensor, dtype: torch.dtype) -> tuple[int, int]:
    """Rows and classes of a tile, in `dtype`, of the logits of weight [V, D].

    LIVE_TILES of it, its rows of the input (at most a quarter of the bytes), its block of the weight
    and that block's gradient are together within the bounds above.
    """
    vocab_size, num_features = weight.shape
    whole = num_rows * vocab_size * dtype.itemsize
    budget = min(max(whole // LOGITS_SHARE, MIN_BYTES), MAX_BYTES) // dtype.itemsize
    rows = max(1, min(num_rows, MAX_ROWS, budget // (4 * num_features)))
    classes = (budget - rows * num_features) // (LIVE_TILES * rows + 2 * num_features)
    return rows, max(1, min(vocab_size, classes))


def slices(total: int, size: int) -> Iterator[slice]:
    for start in range(0, total, size):
        yield slice(start, min(start + size, total))


def logit_tile(hidden: Tensor, block: Tensor, bias: Tensor | None) -> Tensor:
    """hidden [r, D], block [c, D] of the weight in the precision to compute in, bias [c] to logits [r, c]."""
    if bias is None:
        return hidden @ block.T
    return torch.addmm(bias.to(hidden.dtype), hidden, block.T)


def has_float32_product(tensor: Tensor) -> bool:
    """Whether torch multiplies matrices of low precision into float32 here: on a GPU, from 2.8 on."""
    return tensor.is_cuda and hasattr(torch.ops.aten.mm, "dtype")


def float32_product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right, summed and returned in float32."""
    if left.dtype == torch.float32:
        return left @ right
    if has_float32_product(left):
        return torch.mm(left, right, out_dtype=torch.float32)
    return left.float() @ right.float()
