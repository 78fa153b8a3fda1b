"""Residual addition and layer normalisation (Ba et al. 2016, equation 4), both in float32."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def normalised(
    x,  # float32[ROWS, COLUMNS], 0 in the columns past num_columns
    columns,  # int32[COLUMNS]
    num_columns,
    weight_ptr,  # float32[num_columns]
    bias_ptr,  # float32[num_columns] or None
    eps,
):
    """float32[ROWS, COLUMNS]. The rows are centred before they are squared, so that nothing cancels."""
    inside = columns < num_columns
    mean = tl.sum(x, axis=1) / num_columns
    centred = tl.where(inside[None, :], x - mean[:, None], 0.0)
    variance = tl.sum(centred * centred, axis=1) / num_columns
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    y = centred * tl.rsqrt(variance + eps)[:, None] * weight[None, :]
    if bias_ptr is not None:
        y += tl.load(bias_ptr + columns, mask=inside, other=0.0)[None, :]
    return y


@triton.jit(do_not_specialize=["num_rows"])
def add_norm_kernel(
    x_ptr,  # float32[n, H], written if there is a delta, or in place
    delta_ptr,  # [n, H] or None, added to x
    weight_ptr,  # float32[H], or None: no norm
    bias_ptr,  # float32[H] or None
    eps,
    y_ptr,  # [n, H], written: norm(x)
    num_rows,
    num_columns,
    NORMALISE_IN_PLACE: tl.constexpr,  # x = norm(x) too
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,  # at least H
):
    """Program i: block i of rows."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    inside = (rows < num_rows)[:, None] & (columns < num_columns)[None, :]
    place = rows[:, None] * num_columns + columns[None, :]
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    if delta_ptr is not None:
        x += tl.load(delta_ptr + place, mask=inside, other=0.0).to(tl.float32)
    y = x
    if weight_ptr is not None:
        y = normalised(x, columns, num_columns, weight_ptr, bias_ptr, eps)
    if NORMALISE_IN_PLACE:
        tl.store(x_ptr + place, y, mask=inside)
    elif delta_ptr is not None:
        tl.store(x_ptr + place, x, mask=inside)
    tl.store(y_ptr + place, y.to(y_ptr.dtype.element_ty), mask=inside)
