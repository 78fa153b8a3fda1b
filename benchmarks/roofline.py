"""The least time that a kernel's work can take on a GPU, were it as fast as its data sheet says.

Williams et al. 2009, "Roofline: an insightful visual performance model for multicore architectures".
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Work:
    """Of one launch."""

    bytes: int
    """Of memory: what is read counted once, what is written counted once."""
    matrix_flops: int = 0
    """Of products of matrices: a multiplication and an addition are two."""
    vector_flops: int = 0
    """Of kernels without such products: every operation on a float is one, exp and erf like an addition. Of
    kernels that multiply outside matrix units, as matrix_flops."""


@dataclass(frozen=True)
class Gpu:
    """The rates of a data sheet: assumptions, which no program reaches."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    bytes_per_second: float
    half_flops: float
    """A second, on matrix units without sparsity, of bfloat16 and float16."""
    tf32_flops: float
    """Likewise."""
    float32_flops: float
    """A second, outside matrix units, two for a multiplication fused with an addition."""
    source: str


GPUS = (
    Gpu(
        name="A100 80GB SXM",
        capability=(8, 0),
        multiprocessors=108,
        bytes_per_second=2.039e12,
        half_flops=312e12,
        tf32_flops=156e12,
        float32_flops=19.5e12,
        source="NVIDIA A100 Tensor Core GPU data sheet, column A100 80GB SXM",
    ),
    Gpu(
        name="H200 SXM",
        capability=(9, 0),
        multiprocessors=132,
        bytes_per_second=4.8e12,
        half_flops=989e12,
        tf32_flops=494e12,
        float32_flops=67e12,
        source="NVIDIA H200 Tensor Core GPU data sheet, column H200 SXM; half of its rates with sparsity",
    ),
)
TF32_PRODUCTS = 3
"""The kernels multiply float32 as so many tf32 products (tf32x3)."""


@dataclass(frozen=True)
class Bound:
    seconds: float
    set_by: str
    """memory, matrix units or arithmetic: what takes longest."""


def bound(work: Work, dtype: torch.dtype, gpu: Gpu) -> Bound:
    """The three run beside one another; dtype: of what is multiplied."""
    matrix_rate = gpu.tf32_flops / TF32_PRODUCTS if dtype == torch.float32 else gpu.half_flops
    seconds = {
        "memory": work.bytes / gpu.bytes_per_second,
        "matrix units": work.matrix_flops / matrix_rate,
        "arithmetic": work.vector_flops / gpu.float32_flops,
    }
    set_by = max(seconds, key=seconds.__getitem__)
    return Bound(seconds[set_by], set_by)
