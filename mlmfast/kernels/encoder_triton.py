"""impl "triton" of the packed encoder's operators but attention: encoder_torch says what each computes.

Tensors are contiguous and on one device. Under the interpreter, which would cut bfloat16 off rather than
round it, kernels write float32 and torch rounds.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlmfast.kernels.encoder_inputs import EmbeddingTables, Layout, Norm
from mlmfast.kernels.encoder_torch import counted_positions, linear, shared_ids
from mlmfast.kernels.triton.launch import divide_up, on_device_of
from mlmfast.kernels.triton.row_tiles import INDEX_ELEMENTS, parts_of_rows, whole_rows

EPILOGUES = {"relu": False, "gelu_tanh": True}
"""Activations that cuBLASLt has as the end of a product, by what torch._addmm_activation calls use_gelu. Its
only gelu is the one with tanh; that with erf is a kernel's of ours, as are gated ones."""


def embed_inputs(layout: Layout, tables: EmbeddingTables) -> Tensor:
    """The embeddings of the pool, float32[P, E]."""
    from mlmfast.kernels.triton.embedding import embed_kernel

    num_columns = tables.word.shape[1]
    x = tables.word.new_empty((layout.num_inputs, num_columns), dtype=torch.float32)
    if len(x) == 0:
        return x
    index = None if layout.shares_inputs else expand_index(layout)
    table_positions = None
    if layout.position_skip_id is not None:
        ids, skip_id = shared_ids(layout)[index], layout.position_skip_id
        table_positions = counted_positions(ids, layout.row_starts, skip_id, tables.position_offset)
    tile = whole_rows(num_columns)
    with on_device_of(x):
        embed_kernel[tile.grid(*x.shape)](
            *(layout.text_ids, layout.text_types, layout.text_offsets, layout.row_text, layout.row_starts),
            *(layout.mask_positions, layout.mask_offsets, index, layout.row_scale, table_positions),
            *(tables.word, tables.token_type, tables.position, *parts_of_norm(tables.norm), x),
            *(*x.shape, len(layout.text_ids), len(layout.text_offsets) - 1, len(layout.row_text)),
            *(layout.mask_token_id, tables.position_offset),
            -1 if tables.dropout_id is None else tables.dropout_id,
            **tile.constants,
        )
    return x


def expand_index(layout: Layout) -> Tensor:
    """int32[n]: of each packed token its input in a shared pool."""
    from mlmfast.kernels.triton.expansion import mask_index_kernel, text_index_kernel

    index = torch.empty(layout.num_tokens, dtype=torch.int32, device=layout.text_ids.device)
    num_rows, num_masks = len(layout.row_text), len(layout.mask_positions)
    with on_device_of(index):
        if layout.num_tokens > 0:
            text_index_kernel[(divide_up(layout.num_tokens, INDEX_ELEMENTS),)](
                *(layout.row_starts, layout.row_text, layout.text_offsets, index),
                *(layout.num_tokens, num_rows),
                ELEMENTS=INDEX_ELEMENTS,
            )
        if num_masks > 0:
            mask_index_kernel[(divide_up(num_masks, INDEX_ELEMENTS),)](
                *(layout.mask_offsets, layout.mask_positions, layout.row_starts, index),
                *(num_masks, num_rows, len(layout.text_ids)),
                ELEMENTS=INDEX_ELEMENTS,
            )
    return index


def expand_rows(pool: Tensor, index: Tensor) -> Tensor:
    """Rows `index` int32[n] of pool [P, C], as [n, C]."""
    from mlmfast.kernels.triton.expansion import expand_kernel

    output = pool.new_empty((len(index), pool.shape[1]))
    if len(output) > 0:
        tile = parts_of_rows(pool.shape[1])
        with on_device_of(pool):
            expand_kernel[tile.grid(*output.shape)](pool, index, output, *output.shape, **tile.constants)
    return output


def add_norm(
    x: Tensor, delta: Tensor | None, norm: Norm | None, normalise_in_place: bool, dtype: torch.dtype
) -> Tensor:
    """x float32[n, H] += delta half[n, H], in place; y = norm(x) as `dtype` [n, H]."""
    from mlmfast.kernels.triton.normalisation import add_norm_kernel

    y = torch.empty_like(x, dtype=written_dtype(x, dtype))
    if len(x) > 0:
        tile = whole_rows(x.shape[1])
        with on_device_of(x):
            add_norm_kernel[tile.grid(*x.shape)](
                *(x, delta, *parts_of_norm(norm), y, *x.shape),
                NORMALISE_IN_PLACE=normalise_in_place,
                **tile.constants,
            )
    return y.to(dtype)


def activation(inner: Tensor, kind: str, gated: bool) -> Tensor:
    """inner half[n, I] to act(inner), or gated half[n, 2I] to act(a) * b with a its first I columns."""
    from mlmfast.kernels.triton.activation import activation_kernel

    num_rows, num_columns = len(inner), inner.shape[1] // (2 if gated else 1)
    output = inner.new_empty((num_rows, num_columns), dtype=written_dtype(inner, inner.dtype))
    if num_rows > 0:
        tile = parts_of_rows(num_columns)
        with on_device_of(inner):
            activation_kernel[tile.grid(num_rows, num_columns)](
                *(inner, output, num_rows, num_columns), KIND=kind, GATED=gated, **tile.constants
            )
    return output.to(inner.dtype)


def linear_activation(x: Tensor, weight: Tensor, bias: Tensor | None, kind: str, gated: bool) -> Tensor:
    """activation(x W^T + b); in half precision on a GPU as one product where cuBLASLt can. How exact its tanh
    is in float32 is written nowhere."""
    if x.is_cuda and x.dtype != torch.float32 and bias is not None and not gated and kind in EPILOGUES:
        return torch._addmm_activation(bias, x, weight.t(), use_gelu=EPILOGUES[kind])
    return activation(linear(x, weight, bias), kind, gated)


def rotate(vectors: Tensor, positions: Tensor, cosines: Tensor, sines: Tensor) -> None:
    """Turns vectors half[n, heads * d] in place; rows may lie apart, columns may not."""
    from mlmfast.kernels.triton.rotation import rotate_kernel

    num_rows, num_pairs = len(vectors), vectors.shape[1] // 2
    if num_rows == 0:
        return
    turned = vectors.to(written_dtype(vectors, vectors.dtype))
    tile = parts_of_rows(num_pairs)
    with on_device_of(vectors):
        rotate_kernel[tile.grid(num_rows, num_pairs)](
            *(turned, positions, cosines, sines, num_rows, num_pairs, turned.stride(0)),
            HALF=cosines.shape[1],
            **tile.constants,
        )
    if turned is not vectors:
        vectors.copy_(turned)


def parts_of_norm(norm: Norm | None) -> tuple[Tensor | None, Tensor | None, float]:
    return (None, None, 0.0) if norm is None else (norm.weight, norm.bias, norm.eps)


def written_dtype(tensor: Tensor, dtype: torch.dtype) -> torch.dtype:
    """What a kernel beside `tensor` writes for `dtype`."""
    return dtype if tensor.is_cuda else torch.float32
