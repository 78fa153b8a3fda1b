"""impl "triton" of attention over packed sequences: one kernel for short and long ones, nothing padded."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mlmfast.kernels.triton.launch import (
    PROGRAMS_PER_MULTIPROCESSOR,
    divide_up,
    num_multiprocessors,
    on_device_of,
)

LEAST_WIDTH = 16
"""Of a head in a product on matrix units."""
GREATEST_WIDTH = 256
TOKENS_PER_PLACE = 4
"""From so many tokens to a query on, the queries are places of many sequences, not whole sequences."""


@dataclass(frozen=True)
class AttentionTile:
    """A program holds `queries` queries of one head and goes through their keys `keys` at a time.

    Every shape fits 99 KB of shared memory, and none spills registers at compute capabilities 8.0 and 9.0.
    """

    queries: int
    keys: int
    num_warps: int = 4
    num_stages: int = 2
    precision: str = "tf32x3"
    """Of products of float32: three of tf32 come within about 2^-21; `ieee` leaves the matrix units idle."""


SEQUENCE_TILES = {
    2: {128: AttentionTile(64, 32), 256: AttentionTile(64, 32, num_warps=8)},
    4: {
        32: AttentionTile(64, 32),
        64: AttentionTile(32, 32),
        128: AttentionTile(16, 32),
        256: AttentionTile(16, 16, precision="ieee"),
    },
}
"""For queries that are whole sequences: by bytes of an element, then by the greatest width of a head."""
PLACE_TILES = {
    2: {128: AttentionTile(16, 64), 256: AttentionTile(16, 32)},
    4: {64: AttentionTile(16, 64), 128: AttentionTile(16, 32), 256: AttentionTile(16, 16, precision="ieee")},
}
"""For queries that share no keys: a taller tile would only compute more scores that nobody wants."""


def can_run(head_size: int) -> str | None:
    """None if it can, else why not, in one clause."""
    if head_size > GREATEST_WIDTH:
        return f"the attention kernel takes heads of at most {GREATEST_WIDTH} values, not {head_size}"
    return None


def head_width(head_size: int) -> int:
    """The power of two that a head is padded to inside the kernel."""
    return max(LEAST_WIDTH, 1 << (head_size - 1).bit_length())


def attention_tile(head_size: int, dtype: torch.dtype, for_places: bool) -> AttentionTile:
    tiles = (PLACE_TILES if for_places else SEQUENCE_TILES)[dtype.itemsize]
    return tiles[min(width for width in tiles if width >= head_width(head_size))]


def attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    query_token: Tensor,
    key_start: Tensor,
    key_end: Tensor,
    num_heads: int,
    half_window: int | None,
    max_keys: int,
) -> Tensor:
    """As encoder_torch.attention; a query without a key gets zeros.

    A program sees the keys from the first to the last that any of its queries attends: values there that are
    not finite make all of its queries NaN.
    """
    from mlmfast.kernels.triton.attention import attention_kernel

    num_queries, hidden_size = queries.shape
    head_size = hidden_size // num_heads
    for_places = num_queries * TOKENS_PER_PLACE <= len(keys)
    tile = attention_tile(head_size, queries.dtype, for_places)
    is_interpreted = not queries.is_cuda
    # Rounded by torch where there is no GPU: the interpreter would cut bfloat16 off instead.
    output_dtype = torch.float32 if is_interpreted else queries.dtype
    output = queries.new_empty((num_queries, hidden_size), dtype=output_dtype)
    if num_queries == 0:
        return output.to(queries.dtype)
    queries_per_program = tile.queries
    if for_places:  # fewer, where long sequences have few
        wanted = PROGRAMS_PER_MULTIPROCESSOR * num_multiprocessors(queries.device)
        queries_per_program = max(1, min(tile.queries, num_queries * num_heads // wanted))
    with on_device_of(queries):
        attention_kernel[divide_up(num_queries, queries_per_program), num_heads](
            *(queries, keys, values, query_token, key_start, key_end, output),
            *(num_queries, queries_per_program, queries.stride(0), keys.stride(0), values.stride(0)),
            half_window,
            math.log2(math.e) / math.sqrt(head_size),
            HEAD_SIZE=head_size,
            WIDTH=head_width(head_size),
            QUERIES=tile.queries,
            KEYS=tile.keys,
            PRECISION=tile.precision,
            PRODUCT_IN_FLOAT32=is_interpreted,
            num_warps=tile.num_warps,
            num_stages=tile.num_stages,
        )
    return output.to(queries.dtype)
