"""impl "torch" of the packed encoder's operators: plain torch, what the kernels are tested against.

"half" is the dtype of the matrix products: bfloat16, float16, or float32 itself. The residual stream x,
norms, activations, rotations and softmax are in float32. n tokens of width H in heads of size d.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from mlmfast.kernels.encoder_inputs import EmbeddingTables, Layout, Norm
from mlmfast.kernels.logit_tiles import slices

GATHERED_BYTES = 1 << 22
"""Of the keys of a part of the queries."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}


def embed_inputs(layout: Layout, tables: EmbeddingTables) -> Tensor:
    """The embeddings of the pool, float32[P, E]: word + token type + position, then the norm if there is one.

    Token dropout (Lin et al. 2023, ESM-2): words of the dropout id are zeroed, the others scaled.
    """
    if layout.shares_inputs:
        ids, types, table_rows = _shared_inputs(layout, tables)
    else:
        ids, types, table_rows = _packed_inputs(layout, tables)
    x = tables.word[ids].float()
    if layout.row_scale is not None:
        scale = layout.row_scale[rows_of(layout.row_starts, layout.num_tokens)]
        x *= scale.masked_fill(ids == tables.dropout_id, 0.0)[:, None]
    if tables.token_type is not None:
        x += tables.token_type[types].float()
    if tables.position is not None:
        x += tables.position[table_rows].float()
    return x if tables.norm is None else normalised(x, tables.norm)


def _shared_inputs(layout: Layout, tables: EmbeddingTables) -> tuple[Tensor, Tensor, Tensor]:
    """Of the tokens of the texts and of the masks: ids, token types, rows of the position table."""
    num_text_tokens, num_masks = len(layout.text_ids), len(layout.mask_positions)
    positions = positions_in(layout.text_offsets, num_text_tokens)
    masked_row = rows_of(layout.mask_offsets, num_masks)
    masked_token = layout.text_offsets[layout.row_text[masked_row]] + layout.mask_positions
    types = torch.zeros_like(layout.text_ids) if layout.text_types is None else layout.text_types
    return (
        shared_ids(layout),
        torch.cat([types, types[masked_token]]),
        tables.position_offset + torch.cat([positions, layout.mask_positions]),
    )


def shared_ids(layout: Layout) -> Tensor:
    """int32[N+M]: of the tokens of the texts and of the masks."""
    return torch.cat([layout.text_ids, torch.full_like(layout.mask_positions, layout.mask_token_id)])


def _packed_inputs(layout: Layout, tables: EmbeddingTables) -> tuple[Tensor, Tensor, Tensor]:
    """Of the packed tokens: ids, token types, rows of the position table."""
    positions = positions_in(layout.row_starts, layout.num_tokens)
    row = rows_of(layout.row_starts, layout.num_tokens)
    text_token = layout.text_offsets[layout.row_text[row]] + positions
    ids = layout.text_ids[text_token]
    ids[_masked_tokens(layout)] = layout.mask_token_id
    types = torch.zeros_like(ids) if layout.text_types is None else layout.text_types[text_token]
    if layout.position_skip_id is not None:
        skip_id = layout.position_skip_id
        return ids, types, counted_positions(ids, layout.row_starts, skip_id, tables.position_offset)
    return ids, types, tables.position_offset + positions


def counted_positions(ids: Tensor, row_starts: Tensor, skip_id: int, position_offset: int) -> Tensor:
    """int32[n], rows of the position table of packed tokens, ids int32[n]. Tokens of the skipped id are not
    counted, and stand at the row before the first token's."""
    is_counted = torch.ne(ids, skip_id)
    counted = is_counted.cumsum(0, dtype=torch.int32)
    before_rows = functional.pad(counted, (1, 0))[row_starts]
    in_row = counted - before_rows[rows_of(row_starts, len(ids))]  # the token itself among them
    return in_row.mul_(is_counted).add_(position_offset - 1)


def expand_index(layout: Layout) -> Tensor:
    """int32[n]: of each packed token its input in a shared pool, token j of the texts or N + mask."""
    row = rows_of(layout.row_starts, layout.num_tokens)
    positions = positions_in(layout.row_starts, layout.num_tokens)
    index = layout.text_offsets[layout.row_text[row]] + positions
    masks = torch.arange(len(layout.mask_positions), dtype=torch.int32, device=index.device)
    index[_masked_tokens(layout)] = len(layout.text_ids) + masks
    return index


def expand_rows(pool: Tensor, index: Tensor) -> Tensor:
    """Rows `index` int32[n] of pool [P, C], as [n, C]."""
    return pool[index]


def add_norm(
    x: Tensor, delta: Tensor | None, norm: Norm | None, normalise_in_place: bool, dtype: torch.dtype
) -> Tensor:
    """x float32[n, H] += delta half[n, H], in place; returns y = norm(x) as `dtype` [n, H].

    normalise_in_place: x becomes norm(x) too, unrounded (post-norm). Without a delta x is not added to;
    without a norm y is x cast.
    """
    if delta is not None:
        x += delta
    y = x if norm is None else normalised(x, norm)
    if normalise_in_place:
        x.copy_(y)
    return y.to(dtype, copy=True)


def normalised(x: Tensor, norm: Norm) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)


def activation(inner: Tensor, kind: str, gated: bool) -> Tensor:
    """inner half[n, I] to act(inner), or gated half[n, 2I] to act(a) * b with a its first I columns."""
    activated = ACTIVATIONS[kind]
    if not gated:
        return activated(inner.float()).to(inner.dtype)
    left, right = inner.float().chunk(2, dim=-1)
    return (activated(left) * right).to(inner.dtype)


def linear_activation(x: Tensor, weight: Tensor, bias: Tensor | None, kind: str, gated: bool) -> Tensor:
    """activation(x W^T + b): x half[n, H], weight half[I, H] and bias half[I], or gated [2I, H] and [2I]."""
    return activation(linear(x, weight, bias), kind, gated)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x W^T + b: x [n, inputs], weight [outputs, inputs] and bias [outputs] to [n, outputs], in one dtype."""
    return torch.mm(x, weight.t()) if bias is None else torch.addmm(bias, x, weight.t())


def rotate(vectors: Tensor, positions: Tensor, cosines: Tensor, sines: Tensor) -> None:
    """Turns vectors half[n, heads * d] in place, each head to its token's position.

    Rows may lie apart (a view of some columns), columns may not. positions int32[n]; cosines and sines
    float32[max_length, d/2]. Pairs are (x_i, x_i+d/2) (Su et al. 2021, RoFormer, section 3.2.2, in the order
    of GPT-NeoX).
    """
    half = cosines.shape[1]
    heads = torch.unflatten(vectors, 1, (-1, 2, half))  # [n, heads, 2, d/2]
    cosine, sine = cosines[positions][:, None], sines[positions][:, None]
    first, second = heads[:, :, 0].float(), heads[:, :, 1].float()
    heads.copy_(torch.stack([first * cosine - second * sine, second * cosine + first * sine], dim=2))


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
    """softmax(q k^T / sqrt(d)) v of each head (Vaswani et al. 2017, section 3.2.1): half[nq, H].

    queries half[nq, H]; keys and values half[n, H]; rows of each may lie apart (a view of some columns).
    Query j is token query_token[j]; it attends the tokens key_start[j] <= k < key_end[j] (all int32[nq]),
    with half_window only those at most so far away; without any it gets zeros. max_keys: no query has more.
    """
    size = keys.shape[1] // num_heads
    output = torch.empty_like(queries, memory_format=torch.contiguous_format)
    for part in slices(len(queries), max(1, GATHERED_BYTES // (4 * keys.shape[1] * max(max_keys, 1)))):
        tokens = key_start[part, None] + torch.arange(max_keys, dtype=torch.int32, device=keys.device)
        attended = tokens < key_end[part, None]
        tokens = torch.where(attended, tokens, key_start[part, None]).clamp_(max=len(keys) - 1)
        if half_window is not None:
            attended &= (query_token[part, None] - tokens).abs() <= half_window
        q, k, v = (
            torch.unflatten(x.float(), -1, (num_heads, size))  # [queries, (keys,) heads, d]
            for x in (queries[part], keys[tokens], values[tokens])
        )
        weights = torch.einsum("qhd,qkhd->qhk", q, k) / math.sqrt(size)
        weights = weights.masked_fill_(~attended[:, None], -math.inf).softmax(dim=-1)
        context = torch.einsum("qhk,qkhd->qhd", weights, v).flatten(1)
        output[part] = torch.where(attended.any(1, keepdim=True), context, 0.0)
    return output


def rows_of(offsets: Tensor, length: int) -> Tensor:
    """int32[length]: of each element of a CSR list its row; offsets int32[b+1]."""
    rows = torch.arange(len(offsets) - 1, dtype=torch.int32, device=offsets.device)
    return rows.repeat_interleave(offsets.diff(), output_size=length)


def positions_in(offsets: Tensor, length: int) -> Tensor:
    """int32[length]: of each element of a CSR list its place in its row."""
    elements = torch.arange(length, dtype=torch.int32, device=offsets.device)
    return elements - offsets[rows_of(offsets, length)]


def _masked_tokens(layout: Layout) -> Tensor:
    """int32[M], among the packed tokens."""
    row = rows_of(layout.mask_offsets, len(layout.mask_positions))
    return layout.row_starts[row] + layout.mask_positions
