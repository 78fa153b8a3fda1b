"""The encoder's Triton kernels against their twins in plain torch.

Run by test_packed_interpreter under the interpreter, and as it stands where there is a GPU.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from encoder_problems import (
    DTYPES,
    MASK_ID,
    ONE_ULP,
    assert_same,
    integers,
    make_layout,
    make_norm,
    make_tables,
    normal,
    one_mask_each,
)

from mlmfast.kernels import encoder_torch, encoder_triton
from mlmfast.kernels.encoder_inputs import EmbeddingTables, Layout

SHAPES = (
    *((1, 768), (3, 12), (17, 100), (63, 384), (64, 32), (65, 64), (511, 100), (512, 12)),
    *((1, 12), (3, 100), (17, 32), (65, 768), (512, 64), (5, 1100), (2, 4096)),
)
"""Tokens and columns."""
RAGGED = (1, 3, 17, 63, 64, 65, 2)
"""Tokens of each text."""
SEVERAL_MASKS = [(2, [4, 0, 16]), (0, []), (5, [64]), (0, [0]), (1, []), (1, [2, 1]), (4, list(range(64)))]
"""Rows: their text and masks; not all texts, none, one or several masks, in no order."""
SKIP_ID = 1
BATCHES = {
    "one-mask": (RAGGED, one_mask_each(RAGGED)),
    "several-masks": (RAGGED, SEVERAL_MASKS),
    "no-masks": (RAGGED, [(text, []) for text in (3, 3, 0, 6)]),
    "one-token": ((1,), [(0, [0])]),
    "long": ((511, 1, 512), [(0, [510]), (2, [0]), (2, [511, 300]), (1, [])]),
}

ROTATIONS = (
    *((num_tokens, 1, 32) for num_tokens in (1, 3, 17, 63, 64, 65, 511, 512)),
    *((65, 1, 12), (17, 5, 20), (65, 4, 64), (17, 2, 128)),
    *((511, 3, 12), (512, 1, 64), (511, 1, 128)),
)
"""Tokens, heads and their size."""

pytestmark = pytest.mark.usefixtures("poisoned_memory")
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
every_batch = pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)


def assert_same_embeddings(layout: Layout, tables: EmbeddingTables) -> None:
    found = encoder_triton.embed_inputs(layout, tables)
    assert found.shape == (layout.num_inputs, tables.word.shape[1])
    assert_same(found, encoder_torch.embed_inputs(layout, tables))


@every_batch
@pytest.mark.parametrize("types", [True, False])
def test_embeddings_of_a_shared_pool(batch: Any, types: bool) -> None:
    layout = make_layout(*batch, types=types)
    assert_same_embeddings(layout, make_tables(12, norm=make_norm(12)))


@every_batch
@pytest.mark.parametrize("types", [True, False])
@pytest.mark.parametrize(
    "counted", [{"row_scale": True}, {"position_skip_id": SKIP_ID}, {"position_skip_id": MASK_ID}], ids=str
)
def test_embeddings_of_a_pool_of_packed_tokens(batch: Any, types: bool, counted: dict[str, int]) -> None:
    layout = make_layout(*batch, types=types, shares_inputs=False, **counted)
    assert_same_embeddings(layout, make_tables(12, dropout="row_scale" in counted))


def test_embeddings_of_texts_without_rows() -> None:
    assert_same_embeddings(make_layout((5, 1), ()), make_tables(12))


@every_dtype
@pytest.mark.parametrize("num_columns", [12, 32, 64, 100, 384, 768])
@pytest.mark.parametrize("norm_bias", [True, False])
def test_embedding_tables(dtype: torch.dtype, num_columns: int, norm_bias: bool) -> None:
    layout = make_layout((3, 5), [(0, [1]), (1, [0, 4]), (1, [2])])
    assert_same_embeddings(layout, make_tables(num_columns, dtype, norm=make_norm(num_columns, norm_bias)))


@pytest.mark.parametrize("position", [True, False])
@pytest.mark.parametrize("types", [True, False])
@pytest.mark.parametrize("dropout", [True, False])
def test_parts_an_embedding_lacks(position: bool, types: bool, dropout: bool) -> None:
    rows = [(0, [1]), (1, [0, 4]), (1, [2])]
    layout = make_layout((3, 5), rows, shares_inputs=not dropout, row_scale=dropout)
    assert_same_embeddings(layout, make_tables(32, position=position, types=types, dropout=dropout))


@every_batch
def test_expand_index(batch: Any) -> None:
    layout = make_layout(*batch)
    assert_same(encoder_triton.expand_index(layout), encoder_torch.expand_index(layout))


def test_expand_index_of_many_rows() -> None:
    lengths = [1 + row % 5 for row in range(700)]
    layout = make_layout(lengths, [(text, [0] * (text % 3 > 0)) for text in reversed(range(700))])
    assert_same(encoder_triton.expand_index(layout), encoder_torch.expand_index(layout))


@every_dtype
@every_shape
def test_expand_rows(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    num_tokens, num_columns = shape
    pool, index = normal(7, num_columns, dtype=dtype), integers(7, num_tokens)
    assert torch.equal(encoder_triton.expand_rows(pool, index), pool[index])


@every_dtype
@every_shape
@pytest.mark.parametrize("in_place", [True, False])
def test_add_norm(dtype: torch.dtype, shape: tuple[int, int], in_place: bool) -> None:
    x, delta = normal(*shape, scale=3.0) + 5.0, normal(*shape, dtype=dtype, seed=1)
    arguments = (delta, make_norm(shape[1]), in_place, dtype)
    assert_same_additions(x, arguments)


@every_dtype
@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("norm", ["bias", "no-bias", None])
@pytest.mark.parametrize("in_place", [True, False])
def test_parts_an_addition_lacks(dtype: torch.dtype, delta: bool, norm: str | None, in_place: bool) -> None:
    x = normal(17, 100, scale=3.0)
    arguments = (
        normal(17, 100, dtype=dtype, seed=1) if delta else None,
        make_norm(100, norm == "bias") if norm else None,
        in_place,
        dtype,
    )
    assert_same_additions(x, arguments)


def assert_same_additions(x: torch.Tensor, arguments: tuple[Any, ...]) -> None:
    found_x, expected_x = x.clone(), x.clone()
    found = encoder_triton.add_norm(found_x, *arguments)
    assert_same(found, encoder_torch.add_norm(expected_x, *arguments))
    assert_same(found_x, expected_x)
    assert found.data_ptr() != found_x.data_ptr()


def test_equal_columns_have_a_norm_of_the_bias() -> None:
    """No variance but eps: nothing of the mean may be left over."""
    norm = make_norm(100, eps=1e-12)
    x = torch.full_like(normal(3, 100), 1e3)
    y = encoder_triton.add_norm(x, None, norm, False, torch.float32)
    assert norm.bias is not None
    assert_same(y, norm.bias.expand(3, 100))


def test_a_row_has_the_same_norm_in_every_batch() -> None:
    x, norm = normal(65, 100), make_norm(100)
    whole = encoder_triton.add_norm(x.clone(), None, norm, True, torch.float32)
    alone = encoder_triton.add_norm(x[40:41].clone(), None, norm, True, torch.float32)
    assert torch.equal(whole[40:41], alone)


@every_dtype
@every_shape
@pytest.mark.parametrize("gated", [True, False])
def test_activation(dtype: torch.dtype, shape: tuple[int, int], gated: bool) -> None:
    num_tokens, num_columns = shape
    inner = normal(num_tokens, num_columns * (2 if gated else 1), dtype=dtype, scale=3.0)
    found = encoder_triton.activation(inner, "gelu", gated)
    assert_same(found, encoder_torch.activation(inner, "gelu", gated))


@every_dtype
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("kind", encoder_torch.ACTIVATIONS)
def test_kinds_of_activation(dtype: torch.dtype, gated: bool, kind: str) -> None:
    """From where they are 0 to where they are x."""
    x = torch.linspace(-100, 100, 2002).reshape(1001, 2).T.contiguous()
    inner = x.to(normal(1).device, dtype)
    found = encoder_triton.activation(inner, kind, False)
    assert_same(found, encoder_torch.activation(inner, kind, False))
    if gated:
        inner = inner[:, :1000].contiguous()
        assert_same(encoder_triton.activation(inner, kind, True), encoder_torch.activation(inner, kind, True))


@every_dtype
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("kind", encoder_torch.ACTIVATIONS)
def test_activation_after_a_product(dtype: torch.dtype, bias: bool, gated: bool, kind: str) -> None:
    """Whether or not they are one, whose product is not rounded."""
    x, weight = normal(65, 32, dtype=dtype), normal(48, 32, dtype=dtype, scale=0.5, seed=1)
    shift = normal(48, dtype=dtype, seed=2) if bias else None
    found = encoder_triton.linear_activation(x, weight, shift, kind, gated)
    exact_shift = None if shift is None else shift.double()
    exact = encoder_torch.linear(x.double(), weight.double(), exact_shift)
    expected = encoder_torch.activation(exact.float(), kind, gated)
    assert (found.dtype, found.shape) == (dtype, expected.shape)
    bound = 4 * ONE_ULP[dtype] * float(expected.abs().max())
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=bound)


@pytest.mark.parametrize("kind", encoder_torch.ACTIVATIONS)
def test_nan_stays_nan(kind: str) -> None:
    assert encoder_triton.activation(normal(3, 5) * torch.nan, kind, False).isnan().all()


@every_dtype
@pytest.mark.parametrize("rotation", ROTATIONS, ids=str)
@pytest.mark.parametrize("part", ["queries-and-keys", "keys", "all"])
def test_rotation(dtype: torch.dtype, rotation: tuple[int, int, int], part: str) -> None:
    """Of columns among others, which stay."""
    num_tokens, num_heads, size = rotation
    hidden = num_heads * size
    first, end = {"queries-and-keys": (0, 2), "keys": (1, 2), "all": (0, 3)}[part]
    columns = slice(first * hidden, end * hidden)
    qkv = normal(num_tokens, 3 * hidden, dtype=dtype)
    positions, angles = integers(512, num_tokens), normal(512, size // 2, scale=3.0)
    found, expected = qkv.clone(), qkv.clone()
    encoder_triton.rotate(found[:, columns], positions, angles.cos(), angles.sin())
    encoder_torch.rotate(expected[:, columns], positions, angles.cos(), angles.sin())
    assert_same(found, expected)
    others = torch.ones(3 * hidden, dtype=torch.bool, device=qkv.device)
    others[columns] = False
    assert torch.equal(found[:, others], qkv[:, others])


def test_nothing_of_nothing() -> None:
    empty, index, norm = normal(0, 12), integers(7, 0), make_norm(12)
    assert encoder_triton.expand_rows(normal(7, 12), index).shape == (0, 12)
    assert encoder_triton.add_norm(empty, empty, norm, True, torch.float16).shape == (0, 12)
    assert encoder_triton.activation(empty, "gelu", True).shape == (0, 6)
    encoder_triton.rotate(empty, index, normal(3, 2), normal(3, 2))
    layout = make_layout((), ())
    assert encoder_triton.expand_index(layout).shape == (0,)
    assert encoder_triton.embed_inputs(layout, make_tables(12)).shape == (0, 12)
