"""Rotary positions (Su et al. 2021, RoFormer, section 3.2.2), with pairs (x_i, x_i+d/2) as in GPT-NeoX."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_rows"])
def rotate_kernel(
    vectors_ptr,  # [n, heads * d], turned in place; rows lie row_stride apart
    positions_ptr,  # int32[n]
    cosines_ptr,  # float32[max_length, d/2]
    sines_ptr,  # float32[max_length, d/2]
    num_rows,
    num_pairs,  # heads * d/2
    row_stride,
    HALF: tl.constexpr,  # d/2
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Program (i, j): block i of rows, block j of the pairs of all heads."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    pairs = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (rows < num_rows)[:, None] & (pairs < num_pairs)[None, :]
    features = pairs % HALF
    positions = tl.load(positions_ptr + rows, mask=rows < num_rows, other=0)
    angle = positions[:, None] * HALF + features[None, :]
    cosine = tl.load(cosines_ptr + angle, mask=inside, other=0.0)
    sine = tl.load(sines_ptr + angle, mask=inside, other=0.0)
    place = vectors_ptr + rows[:, None] * row_stride + (pairs // HALF * (2 * HALF) + features)[None, :]
    first = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(place + HALF, mask=inside, other=0.0).to(tl.float32)
    dtype = vectors_ptr.dtype.element_ty
    tl.store(place, (first * cosine - second * sine).to(dtype), mask=inside)
    tl.store(place + HALF, (second * cosine + first * sine).to(dtype), mask=inside)
