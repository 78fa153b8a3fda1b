"""How far a kernel may be from the float64 reference, beyond the float32 reference's own error."""

from __future__ import annotations

from typing import NamedTuple

import torch

from mlmfast.kernels.head import has_matrix_units


class Tolerance(NamedTuple):
    loss: float
    """Absolute, for a loss near 1; relative above."""
    gradient: float
    """Relative to the largest element of the gradient, or to `SMALLEST` if that is larger."""


SMALLEST = 1e-2
"""A gradient all of whose elements are smaller than this is compared absolutely."""

FLOAT64 = Tolerance(loss=1e-12, gradient=1e-10)
FLOAT32 = Tolerance(loss=1e-5, gradient=2e-5)
BF16X3 = Tolerance(loss=1e-4, gradient=1e-4)
"""float32 inputs, each product by three of bfloat16: promised within 1e-4 per log-probability."""
BFLOAT16 = Tolerance(loss=1e-5, gradient=2**-7)
"""bfloat16 inputs, whose products and sums are float32; the gradients may pass through bfloat16 once
before their product and are rounded to it."""
FLOAT16 = Tolerance(loss=1e-5, gradient=2**-10)
"""Likewise."""

OF_DTYPE = {
    torch.float64: FLOAT64,
    torch.float32: FLOAT32,
    torch.bfloat16: BFLOAT16,
    torch.float16: FLOAT16,
}


def tolerance_of(impl: str, dtype: torch.dtype) -> Tolerance:
    """The core multiplies float32 by bf16x3 where the CPU has matrix units."""
    is_split = impl == "cpu" and dtype == torch.float32 and has_matrix_units()
    return BF16X3 if is_split else OF_DTYPE[dtype]


NEAR_ONE = 1e-5
"""Relative: 1 - p_y and what depends on it, however small."""
