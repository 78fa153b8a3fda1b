"""The embeddings of the pool's inputs, straight from the texts and masks of a batch."""

from __future__ import annotations

import triton
import triton.language as tl

from mlmfast.kernels.triton.expansion import row_of
from mlmfast.kernels.triton.normalisation import normalised


@triton.jit(
    do_not_specialize=[
        "num_inputs",
        "num_text_tokens",
        "num_texts",
        "num_batch_rows",
        "mask_token_id",
        "position_offset",
        "dropout_id",
    ]
)
def embed_kernel(
    text_ids_ptr,  # int32[N]
    text_types_ptr,  # int32[N], or None: all 0
    text_offsets_ptr,  # int32[S+1]
    row_text_ptr,  # int32[b]
    row_starts_ptr,  # int32[b+1]
    mask_positions_ptr,  # int32[M]
    mask_offsets_ptr,  # int32[b+1]
    index_ptr,  # int32[n] of a pool of packed tokens: N or more at the masks; None: the pool is shared
    row_scale_ptr,  # float32[b] or None
    table_positions_ptr,  # int32[n], or None: position_offset + position
    word_ptr,  # [V, E]
    type_ptr,  # [types, E] or None
    position_ptr,  # [max_positions, E] or None
    norm_weight_ptr,  # float32[E], or None: no norm
    norm_bias_ptr,  # float32[E] or None
    eps,
    x_ptr,  # float32[P, E], written
    num_inputs,  # P
    num_columns,  # E
    num_text_tokens,  # N
    num_texts,  # S
    num_batch_rows,  # b
    mask_token_id,
    position_offset,
    dropout_id,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,  # at least E
):
    """Program i: block i of the pool's inputs."""
    inputs = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    real_inputs = tl.minimum(inputs, num_inputs - 1)
    columns = tl.arange(0, COLUMNS)
    inside = (columns < num_columns)[None, :]

    # text_tokens: the token of the texts at each input's place; rows: the row of a mask or packed token.
    if index_ptr is None:
        is_mask = real_inputs >= num_text_tokens
        masks = tl.maximum(real_inputs - num_text_tokens, 0)
        rows = row_of(mask_offsets_ptr, num_batch_rows, masks)
        mask_positions = tl.load(mask_positions_ptr + masks, mask=is_mask, other=0)
        masked_texts = tl.load(row_text_ptr + rows, mask=is_mask, other=0)
        masked_tokens = tl.load(text_offsets_ptr + masked_texts) + mask_positions
        text_tokens = tl.where(is_mask, masked_tokens, real_inputs)
        texts = row_of(text_offsets_ptr, num_texts, text_tokens)
        positions = text_tokens - tl.load(text_offsets_ptr + texts)
    else:
        is_mask = tl.load(index_ptr + real_inputs) >= num_text_tokens
        rows = row_of(row_starts_ptr, num_batch_rows, real_inputs)
        positions = real_inputs - tl.load(row_starts_ptr + rows)
        text_tokens = tl.load(text_offsets_ptr + tl.load(row_text_ptr + rows)) + positions

    ids = tl.where(is_mask, mask_token_id, tl.load(text_ids_ptr + text_tokens))
    x = embeddings(word_ptr, ids, columns, num_columns, inside)
    if row_scale_ptr is not None:
        x *= tl.where(ids == dropout_id, 0.0, tl.load(row_scale_ptr + rows))[:, None]
    if type_ptr is not None:
        types = tl.zeros_like(ids)
        if text_types_ptr is not None:
            types = tl.load(text_types_ptr + text_tokens)
        x += embeddings(type_ptr, types, columns, num_columns, inside)
    if position_ptr is not None:
        table_rows = position_offset + positions
        if table_positions_ptr is not None:
            table_rows = tl.load(table_positions_ptr + real_inputs)
        x += embeddings(position_ptr, table_rows, columns, num_columns, inside)
    if norm_weight_ptr is not None:
        x = normalised(x, columns, num_columns, norm_weight_ptr, norm_bias_ptr, eps)
    place = inputs.to(tl.int64)[:, None] * num_columns + columns[None, :]
    tl.store(x_ptr + place, x, mask=inside & (inputs < num_inputs)[:, None])


@triton.jit
def embeddings(table_ptr, rows, columns, num_columns, inside):
    """float32[ROWS, COLUMNS]: rows of a table, 0 outside."""
    place = rows.to(tl.int64)[:, None] * num_columns + columns[None, :]
    return tl.load(table_ptr + place, mask=inside, other=0.0).to(tl.float32)
