"""Attention over packed sequences, with online softmax.

Formulas: Milakov and Gimelshein 2018 (arXiv:1805.02867), algorithm 3, for the softmax; Dao et al. 2022
(arXiv:2205.14135), algorithm 1, for the sum of values beside it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from mlmfast.kernels.triton.reductions import finite_base


@triton.jit(do_not_specialize=["num_queries", "queries_per_program", "half_window"])
def attention_kernel(
    query_ptr,  # [Q, H], rows query_stride apart
    key_ptr,  # [n, H], rows key_stride apart
    value_ptr,  # [n, H], rows value_stride apart
    query_token_ptr,  # int32[Q]; read only where half_window is given
    key_start_ptr,  # int32[Q]
    key_end_ptr,  # int32[Q]
    output_ptr,  # [Q, H], written: zeros where a query has no key
    num_queries,
    queries_per_program,  # at most QUERIES
    query_stride,
    key_stride,
    value_stride,
    half_window,  # None: no window
    score_scale,  # log2(e) / sqrt(HEAD_SIZE)
    HEAD_SIZE: tl.constexpr,
    WIDTH: tl.constexpr,  # HEAD_SIZE padded to a power of two, at least 16
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    PRECISION: tl.constexpr,  # of products of float32
    PRODUCT_IN_FLOAT32: tl.constexpr,
):
    """Program (i, h): block i of queries, head h.

    Its keys run from the first to the last that any of its queries attends: consecutive queries of several
    short sequences share a program, those of a long one stream its keys. H is the number of heads times
    HEAD_SIZE. PRODUCT_IN_FLOAT32 is for the interpreter, which has no bfloat16 product.
    """
    hidden_size = tl.num_programs(1) * HEAD_SIZE
    lanes = tl.arange(0, QUERIES)
    queries = tl.program_id(0).to(tl.int64) * queries_per_program + lanes
    inside = (lanes < queries_per_program) & (queries < num_queries)
    first = tl.load(key_start_ptr + queries, mask=inside, other=0)
    end = tl.load(key_end_ptr + queries, mask=inside, other=0)
    if half_window is not None:
        token = tl.load(query_token_ptr + queries, mask=inside, other=0)
        first = tl.maximum(first, token - half_window)
        end = tl.minimum(end, token + half_window + 1)
    has_keys = first < end
    program_end = tl.max(tl.where(has_keys, end, 0), axis=0)
    program_first = tl.min(tl.where(has_keys, first, program_end), axis=0)

    columns = tl.arange(0, WIDTH)
    real_columns = columns < HEAD_SIZE
    head_columns = tl.program_id(1) * HEAD_SIZE + columns
    query = tl.load(
        query_ptr + queries[:, None] * query_stride + head_columns[None, :],
        mask=inside[:, None] & real_columns[None, :],
        other=0.0,
    )
    if PRODUCT_IN_FLOAT32:
        query = query.to(tl.float32)
    maximum = tl.full((QUERIES,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((QUERIES,), dtype=tl.float32)
    output = tl.zeros((QUERIES, WIDTH), dtype=tl.float32)
    for first_key in range(program_first, program_end, KEYS):
        keys = first_key + tl.arange(0, KEYS)
        present = keys < program_end
        key_rows = keys.to(tl.int64)
        key = tl.load(
            key_ptr + key_rows[None, :] * key_stride + head_columns[:, None],
            mask=present[None, :] & real_columns[:, None],
            other=0.0,
        )
        value = tl.load(
            value_ptr + key_rows[:, None] * value_stride + head_columns[None, :],
            mask=present[:, None] & real_columns[None, :],
            other=0.0,
        )
        if PRODUCT_IN_FLOAT32:
            key = key.to(tl.float32)
            value = value.to(tl.float32)
        scores = tl.dot(query, key, input_precision=PRECISION) * score_scale
        attended = (keys[None, :] >= first[:, None]) & (keys[None, :] < end[:, None])
        scores = tl.where(attended, scores, float("-inf"))
        new_maximum = tl.maximum(maximum, tl.max(scores, axis=1))
        base = finite_base(new_maximum)
        relative = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(maximum - base)
        total = total * shrink + tl.sum(relative, axis=1)
        output = tl.dot(relative.to(value.dtype), value, output * shrink[:, None], input_precision=PRECISION)
        maximum = new_maximum
    # A query whose scores are all -inf has no distribution: 0 / 0 makes it NaN.
    output = output / tl.where(has_keys, total, 1.0)[:, None]
    tl.store(
        output_ptr + queries[:, None] * hidden_size + head_columns[None, :],
        output.to(output_ptr.dtype.element_ty),
        mask=inside[:, None] & real_columns[None, :],
    )
