"""The roofline bounds of kernels at several shapes, as reports have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple
from typing import Any, NamedTuple

import torch
from kernel_work import Shape
from roofline import GPUS, Gpu, Work, bound

Works = Mapping[Shape, Mapping[str, Work]]
"""Of kernels by name, in the order of a report's shapes."""


class KernelBound(NamedTuple):
    """In a report, which has thousands, a list in the order of its `bound`."""

    shape: int
    """Index into the report's shapes."""
    bytes: int
    matrix_flops: int
    vector_flops: int
    us: float
    set_by: str


def bounds(kernel: str, works: Works, dtype: torch.dtype, gpu: Gpu) -> list[list[Any]]:
    """A KernelBound at each shape that its work is counted at; of another model and with another vocabulary
    only where that matters."""
    found = []
    seen: set[tuple[int, Work]] = set()
    for index, (shape, counted) in enumerate(works.items()):
        work = counted.get(kernel)
        if work is None or (shape.text_length, work) in seen:
            continue
        seen.add((shape.text_length, work))
        least = bound(work, dtype, gpu)
        found.append([*KernelBound(index, *astuple(work), round(least.seconds * 1e6, 3), least.set_by)])
    return found


def described_gpus() -> list[dict[str, Any]]:
    return [asdict(gpu) | {"capability": "{}.{}".format(*gpu.capability)} for gpu in GPUS]


def described_shapes(shapes: Mapping[Shape, str]) -> list[dict[str, Any]]:
    """shapes: and the model that each is of."""
    return [
        {"model": model} | asdict(shape) | {"rows": shape.rows, "tokens": shape.tokens}
        for shape, model in shapes.items()
    ]
