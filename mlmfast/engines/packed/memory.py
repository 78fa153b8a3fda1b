"""How many tokens the device's memory holds, and how it says that it does not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch

from mlmfast.engines.packed.buckets import BUCKETS_OF_A_SIZE, SMALL_SIZES
from mlmfast.engines.packed.lanes import NUM_LANES
from mlmfast.engines.packed.spec import EncoderSpec
from mlmfast.errors import MlmfastError

CPU_BATCH_TOKENS = 2048
MOST_BATCH_TOKENS = 65536
"""Padding counted. A product of so many rows and 768 columns has 3072 tiles of 128 x 128: 23 for each of an
H200's 132 multiprocessors."""
SHARE = 0.8
"""Of the free memory that batches may take: allocators leave gaps."""
HEAD_BYTES = 1 << 29
"""Kept for the head: chunks of logits, and sums of the splits of the vocabulary."""
OUT_OF_MEMORY = ("out of memory", "alloc_failed")
INDEX_BYTES = 128
"""Of a token: ids, offsets, masks, places and indices into them."""


def bytes_per_token(spec: EncoderSpec, dtype: torch.dtype) -> int:
    """The most memory that a packed token takes at once in packed.forward, weights apart.

    That is where the inputs are embedded, or expanded (the pool has up to two a token: its own and a mask's),
    or in the feed-forward networks. x is float32; y, qkv, context and inner in `dtype`. The head takes less.
    """
    size, hidden, inner = dtype.itemsize, spec.hidden_size, spec.intermediate_size
    x, y = 4 * hidden, size * hidden
    projected = (4 + size) * spec.embedding_size if spec.embedding_projection else 0
    embedded = 2 * (projected + x + y)
    expanded = max(2 * (x + y) + x, x + (2 + 1) * 3 * y)
    num_products = 2 if spec.gated else 1
    fed_forward = x + 2 * y + (num_products + 1) * size * inner
    return INDEX_BYTES + max(embedded, expanded, fed_forward)


def graph_bytes_per_token(spec: EncoderSpec, dtype: torch.dtype) -> int:
    """What packed.graphs keeps of a token of a bucket: its inputs, x and y."""
    return INDEX_BYTES + (4 + dtype.itemsize) * spec.hidden_size


def fitting_size(spec: EncoderSpec, dtype: torch.dtype, device: torch.device) -> int:
    """Tokens of the largest bucket, from the memory that is free on the GPU; full batches have one less."""
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(device)
    return size_within(free, bytes_per_token(spec, dtype), graph_bytes_per_token(spec, dtype))


def size_within(free_bytes: int, token_bytes: int, graph_bytes: int) -> int:
    """Each lane has its share of the free memory. It takes token_bytes of a token twice, as graphs keep what
    they compute with and batches without one take theirs beside it; and graph_bytes of a token of every
    bucket."""
    small = BUCKETS_OF_A_SIZE * sum(SMALL_SIZES) * graph_bytes
    fitting = (SHARE * free_bytes / NUM_LANES - HEAD_BYTES - small) // (
        2 * token_bytes + BUCKETS_OF_A_SIZE * graph_bytes
    )
    return int(np.clip(fitting, 2, MOST_BATCH_TOKENS))


def ran_out_of_memory(error: RuntimeError) -> bool:
    """Also where cuBLAS, the driver or pinned memory say so, of which torch makes no OutOfMemoryError."""
    said = str(error).lower()
    return isinstance(error, torch.cuda.OutOfMemoryError) or any(sign in said for sign in OUT_OF_MEMORY)


@contextlib.contextmanager
def weights_within_memory(precision: str, device: torch.device) -> Iterator[None]:
    """Raises MlmfastError where the device's memory does not hold the weights that are brought there: not
    SettingsError, which `auto` takes as leave to try another engine, whose weights take no less."""
    try:
        yield
    except RuntimeError as error:
        if not ran_out_of_memory(error):
            raise
        advice = "" if precision != "float32" else "ask for precision='bfloat16', "
        raise MlmfastError(
            f"the memory of {device} does not hold the model's weights in {precision}: end what else runs on "
            f"it, {advice}or use device='cpu'"
        ) from error
