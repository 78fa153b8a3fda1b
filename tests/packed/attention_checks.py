"""The Triton kernel of attention against its twin in plain torch.

Run by test_packed_interpreter under the interpreter, and as it stands where there is a GPU.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from encoder_problems import DEVICE, DTYPES, int32, normal, offsets_of
from torch import Tensor

from mlmfast.kernels import attention_triton, encoder_torch, encoder_triton

LENGTHS = (1, 3, 17, 63, 64, 65, 511, 512)
RAGGED = (1, 3, 17, 63, 64, 65, 2, 1)
HEAD_SIZES = (8, 12, 32, 64, 80, 128)
FLOAT32 = 5e-6 if DEVICE == "cpu" else 5e-5
"""Of an output, where values are about 1. A GPU multiplies float32 as three tf32 products."""
TOLERANCE = {torch.float32: FLOAT32, torch.bfloat16: 2**-7, torch.float16: 2**-10}
"""Likewise: the kernel rounds both weights and outputs to half."""
BEHIND = 5
"""Tokens of no sequence behind the packed ones, all NaN."""

pytestmark = pytest.mark.usefixtures("poisoned_memory")
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
every_length = pytest.mark.parametrize("length", LENGTHS)


@dataclass
class Packed:
    """Sequences behind one another; queries at some of their tokens."""

    qkv: Tensor
    """[n, 3H]"""
    num_heads: int
    queries: Tensor
    """[nq, H]"""
    query_token: Tensor
    key_start: Tensor
    key_end: Tensor

    @property
    def keys(self) -> Tensor:
        return self.qkv.chunk(3, dim=1)[1]

    @property
    def values(self) -> Tensor:
        return self.qkv.chunk(3, dim=1)[2]

    def by_kernel(self, half_window: int | None = None) -> Tensor:
        return self.attend(attention_triton.attention, half_window)

    def by_twin(self, half_window: int | None = None) -> Tensor:
        return self.attend(encoder_torch.attention, half_window)

    def attend(self, attention: object, half_window: int | None) -> Tensor:
        assert callable(attention)
        return attention(
            *(self.queries, self.keys, self.values, self.query_token, self.key_start, self.key_end),
            *(self.num_heads, half_window, int((self.key_end - self.key_start).max())),
        )


def pack(
    lengths: Sequence[int],
    head_size: int = 32,
    num_heads: int = 2,
    dtype: torch.dtype = torch.float32,
    places: Sequence[Sequence[int]] | None = None,
    scale: float = 1.0,
) -> Packed:
    """places: the positions of each sequence that have a query, all of them if None."""
    starts = offsets_of(lengths)
    width = num_heads * head_size
    qkv = normal(sum(lengths) + BEHIND, 3 * width, dtype=dtype, scale=scale)
    qkv[len(qkv) - BEHIND :] = torch.nan
    if places is None:
        places = [range(length) for length in lengths]
    row = int32([row for row, positions in enumerate(places) for _ in positions])
    position = int32([position for positions in places for position in positions])
    query_token = starts[row] + position
    queries = qkv[: len(qkv) - BEHIND, :width]
    if len(query_token) < len(queries):
        queries = queries[query_token]
    return Packed(qkv, num_heads, queries, query_token, starts[row], starts[row + 1])


def assert_same_attention(
    problem: Packed, half_window: int | None = None, tolerance: float | None = None
) -> None:
    found, expected = problem.by_kernel(half_window), problem.by_twin(half_window)
    tolerance = tolerance or TOLERANCE[problem.qkv.dtype]
    assert found.is_contiguous()
    assert found.dtype == problem.qkv.dtype
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("head_size", HEAD_SIZES)
def test_ragged_sequences(head_size: int) -> None:
    assert_same_attention(pack(RAGGED, head_size))


@pytest.mark.parametrize("head_size", [12, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_ragged_sequences_in_half(head_size: int, dtype: torch.dtype) -> None:
    assert_same_attention(pack(RAGGED, head_size, dtype=dtype))


@every_dtype
@every_length
@pytest.mark.parametrize("head_size", [12, 32, 64, 128])
def test_one_sequence(head_size: int, length: int, dtype: torch.dtype) -> None:
    assert_same_attention(pack([length], head_size, num_heads=1, dtype=dtype))


@pytest.mark.parametrize("half_window", [None, 64])
def test_long_sequences_among_short_ones(half_window: int | None) -> None:
    assert_same_attention(pack((17, 511, 1, 512, 3), num_heads=1), half_window)


def test_the_widest_head() -> None:
    assert_same_attention(pack((3, 17, 1), head_size=256, num_heads=1))


@pytest.mark.parametrize("half_window", [0, 1, 5, 64])
def test_local_windows(half_window: int) -> None:
    assert_same_attention(pack((130, *RAGGED), num_heads=1), half_window)


@every_length
@pytest.mark.parametrize("half_window", [5, 64])
def test_a_local_window_of_one_sequence(half_window: int, length: int) -> None:
    assert_same_attention(pack([length], head_size=64, num_heads=1), half_window)


@every_length
@pytest.mark.parametrize("half_window", [None, 64])
def test_rotary_positions_of_one_sequence(half_window: int | None, length: int) -> None:
    """Queries and keys are turned, then attend."""
    problem = pack([length], num_heads=2)
    turned = replace(problem, qkv=problem.qkv.clone())
    turned.queries = turned.qkv[:length, : problem.queries.shape[1]]
    frequencies = 100.0 ** -(torch.arange(16, device=DEVICE) / 16)
    angles = torch.arange(512, device=DEVICE)[:, None] * frequencies
    for rotate, vectors in ((encoder_triton.rotate, problem.qkv), (encoder_torch.rotate, turned.qkv)):
        rotate(vectors[:length, :128], problem.query_token, angles.cos(), angles.sin())
    found, expected = problem.by_kernel(half_window), turned.by_twin(half_window)
    torch.testing.assert_close(found, expected, rtol=FLOAT32, atol=FLOAT32)


@every_dtype
@pytest.mark.parametrize("head_size", [12, 64])
def test_queries_at_places_alone(head_size: int, dtype: torch.dtype) -> None:
    """One, none or several places of a sequence."""
    places = [[0], [1], [16], [0, 31, 62], [], [64, 64], [], [0]]
    assert_same_attention(pack(RAGGED, head_size, dtype=dtype, places=places))


@pytest.mark.parametrize("half_window", [None, 3, 64])
def test_many_copies_with_one_place_each(half_window: int | None) -> None:
    """More queries than one program has; then the last has fewer."""
    problem = pack([17] * 37, num_heads=4, places=[[i % 17] for i in range(37)])
    assert_same_attention(problem, half_window)


def test_few_queries_of_long_sequences_have_a_program_each() -> None:
    problem = pack([511, 300], num_heads=1, places=[[0, 510], [299]])
    assert_same_attention(problem)
    expected = problem.by_twin()
    problem.values[600] = torch.nan
    found = problem.by_kernel()
    torch.testing.assert_close(found[:2], expected[:2], rtol=FLOAT32, atol=FLOAT32)
    assert found[2].isnan().all()


@pytest.mark.parametrize("half_window", [None, 2])
def test_queries_without_keys_get_zeros(half_window: int | None) -> None:
    """What pads a batch of fixed size; wherever they point, nobody reads the NaN that is there."""
    problem = pack([4, 5, 3])
    expected = problem.by_twin(half_window)[4:]
    problem.qkv[:4] = torch.nan
    nowhere = int32([0] * 35 + [len(problem.qkv)] * 35)
    padded = Packed(
        problem.qkv,
        problem.num_heads,
        torch.cat([problem.queries[4:], problem.queries[:1].expand(70, -1)]),
        *(
            torch.cat([part[4:], nowhere])
            for part in (problem.query_token, problem.key_start, problem.key_end)
        ),
    )
    found = padded.by_kernel(half_window)
    torch.testing.assert_close(found[:8], expected, rtol=FLOAT32, atol=FLOAT32)
    assert (found[8:] == 0).all()


def test_no_query() -> None:
    problem = pack([5], places=[[]])
    found = attention_triton.attention(
        *(problem.queries, problem.keys, problem.values, problem.query_token, problem.key_start),
        *(problem.key_end, problem.num_heads, None, 0),
    )
    assert found.shape == (0, 64)


@pytest.mark.parametrize(("scale", "tolerance"), [(1e-4, FLOAT32), (3.0, 4 * FLOAT32), (1e4, FLOAT32)])
def test_scores_of_any_size(scale: float, tolerance: float) -> None:
    """Up to 1e8 and more: exp of a difference never overflows. Scores of about 100 round by 1e-5 of a weight;
    larger ones leave one weight alone."""
    problem = pack((17, 66), scale=scale)
    assert_same_attention(
        Packed(
            torch.cat([problem.qkv[:, :128], normal(len(problem.qkv), 64)], dim=1),
            *(problem.num_heads, problem.queries, problem.query_token, problem.key_start, problem.key_end),
        ),
        tolerance=tolerance,
    )


def test_scores_of_minus_infinity() -> None:
    """One is a weight of 0; nothing but such scores has no distribution and makes NaN, not a number."""
    problem = pack([70, 3], num_heads=1)
    problem.queries[:] = problem.queries.abs()
    problem.keys[5] = -math.inf
    found, expected = problem.by_kernel(), problem.by_twin()
    assert not found.isnan().any()
    torch.testing.assert_close(found, expected, rtol=FLOAT32, atol=FLOAT32)
    problem.keys[:70] = -math.inf
    found = problem.by_kernel()
    assert found[:70].isnan().all()
    torch.testing.assert_close(found[70:], expected[70:], rtol=FLOAT32, atol=FLOAT32)


def test_values_that_are_not_finite_stay_in_their_program() -> None:
    problem = pack([64, 64], num_heads=1)
    expected = problem.by_twin()
    problem.values[3] = torch.nan
    found = problem.by_kernel()
    assert found[:64].isnan().all()
    torch.testing.assert_close(found[64:], expected[64:], rtol=FLOAT32, atol=FLOAT32)


def test_neighbours_change_nothing_but_the_order_of_sums() -> None:
    lengths = (40, 64, 7, 100)
    together = pack(lengths)
    whole = together.by_kernel()
    starts = offsets_of(lengths).tolist()
    for start, end in itertools.pairwise(starts):
        alone = Packed(
            together.qkv[start:end],
            together.num_heads,
            together.queries[start:end],
            *(
                part[start:end] - start
                for part in (together.query_token, together.key_start, together.key_end)
            ),
        ).by_kernel()
        torch.testing.assert_close(alone, whole[start:end], rtol=FLOAT32, atol=FLOAT32)


@every_dtype
def test_every_head_size_has_tiles(dtype: torch.dtype) -> None:
    for head_size in range(1, 257):
        assert attention_triton.can_run(head_size) is None
        for for_places in (False, True):
            tile = attention_triton.attention_tile(head_size, dtype, for_places)
            assert tile.queries >= 16
            assert tile.keys >= 16
    reason = attention_triton.can_run(257)
    assert reason is not None
    assert "256" in reason
