"""The Triton kernel of attention as its launches compile it, for triton_resources."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from kernel_variant import Variant
from kernel_work import SHAPES

from mlmfast.kernels.attention_triton import attention_tile, head_width
from mlmfast.kernels.triton.attention import attention_kernel

DTYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16"}
HEAD_SIZES = sorted({shape.hidden_size // shape.num_heads for shape in SHAPES})
"""Every shape of a tile, and heads that are padded."""
LOCAL_HEAD_SIZE = 64


def variants(dtype: torch.dtype, capability: tuple[int, int]) -> Iterator[Variant]:
    """capability: the tiles are the same for every one."""
    types = dict.fromkeys(("query_ptr", "key_ptr", "value_ptr", "output_ptr"), DTYPES[dtype])
    types |= dict.fromkeys(("query_token_ptr", "key_start_ptr", "key_end_ptr"), "*i32")
    types["score_scale"] = "fp32"
    for for_places in (False, True):
        name = "attention-places" if for_places else "attention"
        for head_size in HEAD_SIZES:
            tile = attention_tile(head_size, dtype, for_places)
            constants = {
                "HEAD_SIZE": head_size,
                "WIDTH": head_width(head_size),
                "QUERIES": tile.queries,
                "KEYS": tile.keys,
                "PRECISION": tile.precision,
                "PRODUCT_IN_FLOAT32": False,
            }
            options = {"num_warps": tile.num_warps, "num_stages": tile.num_stages}
            whole = constants | {"half_window": None}
            yield Variant(f"{name}-{head_size}", attention_kernel, whole, options, types)
            if head_size == LOCAL_HEAD_SIZE:
                yield Variant(f"{name}-{head_size}-local", attention_kernel, constants, options, types)
