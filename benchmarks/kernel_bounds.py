"""The roofline bounds of kernels at several shapes, as reports have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from kernel_work import SHAPES, Shape
from roofline import GPUS, Gpu, Work, bound

Works = Mapping[Shape, Mapping[str, Work]]
"""Of kernels by name."""


def bounds(kernel: str, works: Works, dtype: torch.dtype, gpu: Gpu) -> list[dict[str, Any]]:
    """At each of SHAPES that its work is counted at; with another vocabulary only where that matters."""
    found = []
    seen: set[tuple[int, Work]] = set()
    for shape in SHAPES:
        work = works[shape].get(kernel)
        if work is None or (shape.text_length, work) in seen:
            continue
        seen.add((shape.text_length, work))
        least = bound(work, dtype, gpu)
        found.append(
            {
                "text_length": shape.text_length,
                "vocab_size": shape.vocab_size,
                **asdict(work),
                "bound_us": round(least.seconds * 1e6, 3),
                "bound_by": least.set_by,
            }
        )
    return found


def described_gpus() -> list[dict[str, Any]]:
    return [asdict(gpu) | {"capability": "{}.{}".format(*gpu.capability)} for gpu in GPUS]


def described_shapes() -> list[dict[str, int]]:
    return [asdict(shape) | {"rows": shape.rows, "tokens": shape.tokens} for shape in SHAPES]
