"""Sizes of tiles and grids. Without triton itself, which is imported when a kernel first runs."""

from __future__ import annotations

import contextlib
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

PROGRAMS_PER_MULTIPROCESSOR = 4
"""How many programs a sweep is split into at least: two are resident, and twice as many even out the end."""
INTERPRETED_MULTIPROCESSORS = 2
MERGED_ROWS = 64
"""Rows of a program that computes no logits."""


@dataclass(frozen=True)
class TileShape:
    """One program holds `rows` x `classes` logits and sums them over `features` features a step.

    num_stages steps are in flight. Every shape fits the 99 KB of shared memory of the smallest GPU with
    bfloat16 matrix units (compute capability 8.6), and no kernel spills registers at 8.0 and 9.0 where D is
    a multiple of 16.
    """

    rows: int
    classes: int
    features: int
    num_stages: int
    statistics_warps: int
    """Of the first sweep; on Hopper four, so that one program's products run beside another's sums."""
    num_warps: int
    """Of the second sweep and the gradient."""


HALF = TileShape(128, 128, 64, num_stages=3, statistics_warps=8, num_warps=8)
HOPPER_HALF = replace(HALF, statistics_warps=4)
TILES = {
    torch.bfloat16: HALF,
    torch.float16: HALF,
    torch.float32: TileShape(64, 128, 32, num_stages=3, statistics_warps=8, num_warps=8),
}
HOPPER_TILES = {
    torch.bfloat16: HOPPER_HALF,
    torch.float16: HOPPER_HALF,
    torch.float32: TileShape(64, 128, 32, num_stages=3, statistics_warps=4, num_warps=4),
}


def tile_shape(dtype: torch.dtype, capability: tuple[int, int] | None) -> TileShape:
    """capability: of the GPU; None under the interpreter."""
    return (HOPPER_TILES if capability == (9, 0) else TILES)[dtype]


@dataclass(frozen=True)
class Sweep:
    """How the logits of N hidden states [D] and a [V, D] weight are divided among programs.

    A program has one of num_row_blocks blocks of rows and one of num_splits splits of the vocabulary,
    each of tiles_per_split tiles (the last one perhaps of fewer), so that few rows fill a GPU too.
    """

    num_rows: int
    num_classes: int
    num_features: int
    num_row_blocks: int
    num_splits: int
    tiles_per_split: int
    tile: TileShape
    interpreted: bool

    @classmethod
    def of(cls, input: Tensor, weight: Tensor, num_rows: int | None = None) -> Sweep:
        """num_rows: N, where it isn't that of input [N, D] (the kernel gathers rows)."""
        capability = torch.cuda.get_device_capability(input.device) if input.is_cuda else None
        tile = tile_shape(input.dtype, capability)
        num_rows, num_classes = len(input) if num_rows is None else num_rows, len(weight)
        num_row_blocks, num_tiles = divide_up(num_rows, tile.rows), divide_up(num_classes, tile.classes)
        wanted = PROGRAMS_PER_MULTIPROCESSOR * num_multiprocessors(input.device)
        tiles_per_split = divide_up(num_tiles, min(num_tiles, divide_up(wanted, max(num_row_blocks, 1))))
        return cls(
            num_rows=num_rows,
            num_classes=num_classes,
            num_features=input.shape[1],
            num_row_blocks=num_row_blocks,
            num_splits=divide_up(num_tiles, tiles_per_split),
            tiles_per_split=tiles_per_split,
            tile=tile,
            interpreted=not input.is_cuda,
        )

    @property
    def grid(self) -> tuple[int, int]:
        return self.num_row_blocks, self.num_splits

    @property
    def merging_grid(self) -> tuple[int]:
        return (divide_up(self.num_rows, MERGED_ROWS),)

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.num_rows, self.num_classes, self.num_features

    @property
    def constants(self) -> dict[str, int]:
        """What every kernel that computes logits is compiled for."""
        return {
            "ROWS": self.tile.rows,
            "CLASSES": self.tile.classes,
            "FEATURES": self.tile.features,
            "PRODUCT_IN_FLOAT32": self.interpreted,
            "num_stages": self.tile.num_stages,
        }


def divide_up(number: int, divisor: int) -> int:
    return -(-number // divisor)


def num_multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return INTERPRETED_MULTIPROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def on_device_of(tensor: Tensor) -> AbstractContextManager[object]:
    """Where Triton launches: the current device, which need not be the tensor's."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()


@cache
def why_triton_fails() -> str | None:
    """None if triton can launch here, else why not, in one clause.

    Its first launch compiles a module of its own: that takes a C compiler and Python's headers, and what
    comes where they lack is of many types."""
    try:
        from triton.runtime import driver

        if os.environ.get("TRITON_INTERPRET") != "1":
            driver.active.get_current_target()
    except ImportError as error:
        return f"triton cannot be imported ({error})"
    except Exception as error:
        return f"triton cannot launch ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
    return None
