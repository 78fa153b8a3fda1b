"""The activation between the two products of a feed-forward network, in float32."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def activated(x, KIND: tl.constexpr):
    """act(x), of float32. Hendrycks and Gimpel 2016 (arXiv:1606.08415), section 2, has both kinds of gelu."""
    if KIND == "relu":
        y = tl.where(x < 0.0, 0.0, x)
    elif KIND == "silu":
        y = x / (1.0 + tl.exp(-x))
    elif KIND == "gelu_tanh":
        # (1 + tanh u) / 2 = 1 / (1 + exp(-2u)), here with sqrt(8 / pi)
        y = x / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))
    else:
        tl.static_assert(KIND == "gelu")
        y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    return y


@triton.jit(do_not_specialize=["num_rows"])
def activation_kernel(
    inner_ptr,  # [n, I], or gated [n, 2I]
    output_ptr,  # [n, I], written
    num_rows,
    num_columns,  # I
    KIND: tl.constexpr,
    GATED: tl.constexpr,  # act(first I columns) * last I columns
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Program (i, j): block i of rows, block j of columns."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (rows < num_rows)[:, None] & (columns < num_columns)[None, :]
    place = rows[:, None] * num_columns + columns[None, :]
    inner = place
    if GATED:
        inner += rows[:, None] * num_columns
    y = activated(tl.load(inner_ptr + inner, mask=inside, other=0.0).to(tl.float32), KIND)
    if GATED:
        y *= tl.load(inner_ptr + inner + num_columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(output_ptr + place, y.to(output_ptr.dtype.element_ty), mask=inside)
