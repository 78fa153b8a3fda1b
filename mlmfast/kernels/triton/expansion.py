"""From the pool of distinct inputs to the packed tokens of the rows, which are texts with masks."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def row_of(offsets_ptr, num_rows, elements):
    """int32: of each element of a CSR list its row, by bisection. Every element is in the list."""
    low = tl.zeros_like(elements)
    high = low + num_rows
    rows_left = num_rows
    while rows_left > 1:
        middle = (low + high) // 2
        is_later = tl.load(offsets_ptr + middle) <= elements
        low = tl.where(is_later, middle, low)
        high = tl.where(is_later, high, middle)
        rows_left = (rows_left + 1) // 2
    return low


@triton.jit(do_not_specialize=["num_tokens", "num_rows"])
def text_index_kernel(
    row_starts_ptr,  # int32[b+1]
    row_text_ptr,  # int32[b]
    text_offsets_ptr,  # int32[S+1]
    index_ptr,  # int32[n], written: the token of the texts that stands there, or did before it was masked
    num_tokens,
    num_rows,
    ELEMENTS: tl.constexpr,
):
    """Program i: block i of packed tokens."""
    tokens = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    real_tokens = tl.minimum(tokens, num_tokens - 1)
    rows = row_of(row_starts_ptr, num_rows, real_tokens)
    positions = real_tokens - tl.load(row_starts_ptr + rows)
    index = tl.load(text_offsets_ptr + tl.load(row_text_ptr + rows)) + positions
    tl.store(index_ptr + tokens, index, mask=tokens < num_tokens)


@triton.jit(do_not_specialize=["num_masks", "num_rows", "num_text_tokens"])
def mask_index_kernel(
    mask_offsets_ptr,  # int32[b+1]
    mask_positions_ptr,  # int32[M]
    row_starts_ptr,  # int32[b+1]
    index_ptr,  # int32[n], of text_index_kernel; written at the masks
    num_masks,
    num_rows,
    num_text_tokens,
    ELEMENTS: tl.constexpr,
):
    """Program i: block i of masks."""
    masks = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    real_masks = tl.minimum(masks, num_masks - 1)
    rows = row_of(mask_offsets_ptr, num_rows, real_masks)
    tokens = tl.load(row_starts_ptr + rows) + tl.load(mask_positions_ptr + real_masks)
    tl.store(index_ptr + tokens, num_text_tokens + masks, mask=masks < num_masks)


@triton.jit(do_not_specialize=["num_rows"])
def expand_kernel(
    pool_ptr,  # [P, C]
    index_ptr,  # int32[n], each < P
    output_ptr,  # [n, C], written
    num_rows,  # n
    num_columns,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Program (i, j): block i of rows, block j of columns."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (rows < num_rows)[:, None] & (columns < num_columns)[None, :]
    index = tl.load(index_ptr + rows, mask=rows < num_rows, other=0).to(tl.int64)
    values = tl.load(pool_ptr + index[:, None] * num_columns + columns[None, :], mask=inside)
    tl.store(output_ptr + rows[:, None] * num_columns + columns[None, :], values, mask=inside)
