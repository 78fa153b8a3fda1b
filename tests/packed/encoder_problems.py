"""Small inputs for the operators of the packed encoder."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mlmfast.kernels.encoder_inputs import EmbeddingTables, Layout, Norm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
VOCAB_SIZE, MASK_ID, NUM_TYPES, MAX_POSITIONS = 50, 4, 2, 600
ONE_ULP = {torch.float32: 2e-5, torch.bfloat16: 2**-7, torch.float16: 2**-10}
"""Relative: both sides compute in float32, then round; in float32 their sums are taken in another order."""


def normal(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, generator=generator)).to(DEVICE, dtype)


def integers(high: int, size: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(high, (size,), generator=generator, dtype=torch.int32).to(DEVICE)


def make_norm(num_columns: int, bias: bool = True, eps: float = 1e-5) -> Norm:
    weight, shift = 1 + normal(num_columns, scale=0.2, seed=1), normal(num_columns, seed=2)
    return Norm(weight, shift if bias else None, eps)


def make_layout(
    text_lengths: Sequence[int],
    rows: Sequence[tuple[int, Sequence[int]]],
    *,
    types: bool = True,
    shares_inputs: bool = True,
    row_scale: bool = False,
    position_skip_id: int | None = None,
) -> Layout:
    """rows: the text and the masks of each. Nothing is a target."""
    lengths = [text_lengths[text] for text, _ in rows]
    num_text_tokens = sum(text_lengths)
    ids = integers(VOCAB_SIZE, num_text_tokens)
    ids[1::7] = MASK_ID
    return Layout(
        text_ids=ids,
        text_types=integers(NUM_TYPES, num_text_tokens, seed=1) if types else None,
        text_offsets=offsets_of(text_lengths),
        row_text=int32([text for text, _ in rows]),
        row_starts=offsets_of(lengths),
        mask_positions=int32([position for _, masks in rows for position in masks]),
        mask_offsets=offsets_of([len(masks) for _, masks in rows]),
        mask_token_id=MASK_ID,
        num_tokens=sum(lengths),
        longest_row=max(lengths, default=0),
        shares_inputs=shares_inputs,
        row_scale=1 + normal(len(rows), scale=0.1) if row_scale else None,
        position_skip_id=position_skip_id,
        place_token=int32([]),
        place_row=int32([]),
        target_ids=int32([]).long(),
        target_offsets=int32([0]).long(),
    )


def one_mask_each(text_lengths: Sequence[int]) -> list[tuple[int, list[int]]]:
    """A row for every position of a short text, and for some of a long one."""
    return [
        (text, [position])
        for text, length in enumerate(text_lengths)
        for position in range(0, length, 1 + length // 8)
    ]


def make_tables(
    num_columns: int,
    dtype: torch.dtype = torch.float32,
    *,
    position: bool = True,
    types: bool = True,
    norm: Norm | None = None,
    dropout: bool = False,
) -> EmbeddingTables:
    return EmbeddingTables(
        word=normal(VOCAB_SIZE, num_columns, dtype=dtype),
        position=normal(MAX_POSITIONS, num_columns, dtype=dtype, seed=1) if position else None,
        token_type=normal(NUM_TYPES, num_columns, dtype=dtype, seed=2) if types else None,
        position_offset=2,
        dropout_id=MASK_ID if dropout else None,
        norm=norm,
    )


def int32(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def offsets_of(lengths: Sequence[int]) -> Tensor:
    """int32[len(lengths) + 1]"""
    return torch.nn.functional.pad(int32(lengths).cumsum(0, dtype=torch.int32), (1, 0))


def assert_same(found: Tensor, expected: Tensor) -> None:
    """But for the order of float32 sums and the last bit of what is rounded to half."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    tolerance = ONE_ULP[expected.dtype] if expected.is_floating_point() else 0.0
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=1e-6 * scale if tolerance else 0.0)
