"""Batches where memory runs out: halved, later ones beforehand, until there is memory again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from random_batches import random_batch, targets_everywhere
from tiny_models import MODELS, tiny_scorer
from torch import Tensor

import mlmfast
from mlmfast.engines import Outputs
from mlmfast.engines.packed import budget as packed_budget
from mlmfast.engines.packed.budget import TokenBudget, halves
from mlmfast.engines.packed.engine import PackedEngine
from mlmfast.engines.packed.forward import Encoder
from mlmfast.errors import InputError, SettingsError
from mlmfast.kernels.encoder_inputs import Layout
from mlmfast.types import RowBatch, TargetOutputs


def limited(limit: int, tried: list[int]) -> Callable[[RowBatch], TargetOutputs]:
    """An engine for whose memory more than `limit` tokens are too many; tried: the tokens of each call."""
    engine = tiny_scorer("bert", engine="packed").engine

    def score(batch: RowBatch) -> TargetOutputs:
        tried.append(batch.num_tokens)
        if tried[-1] > limit:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return engine.score(batch, Outputs(rank=True))

    return score


@pytest.mark.parametrize("limit", [1000, 150, 40])
def test_a_batch_that_does_not_fit_is_halved(limit: int) -> None:
    batch = random_batch([5, 1, 30, 2, 12], 25, vocab_size=30)
    total = batch.num_tokens
    whole = tiny_scorer("bert", engine="packed").engine.score(batch, Outputs(rank=True))
    tried: list[int] = []
    found = TokenBudget().score(batch, limited(limit, tried))
    assert tried[0] == total
    assert sum(tokens for tokens in tried if tokens <= limit) == total
    assert (len(tried) == 1) == (total <= limit)
    np.testing.assert_allclose(found.log_prob, whole.log_prob, rtol=0, atol=5e-5)
    assert found.rank is not None
    assert whole.rank is not None
    np.testing.assert_array_equal(found.rank, whole.rank)


def test_one_row_that_does_not_fit_is_an_error_of_ours() -> None:
    batch = random_batch([5, 30], 6, vocab_size=30)
    with pytest.raises(SettingsError, match=r"does not hold one row of 30 tokens: .*device='cpu'"):
        TokenBudget().score(batch, limited(29, []))


def short_of_memory(monkeypatch: pytest.MonkeyPatch, limit: int) -> list[int]:
    """The tokens of each call of an encoder, for which from now on more than `limit` are too many."""
    tried: list[int] = []
    states = Encoder.states

    def limited_states(self: Encoder, layout: Layout, trunk: None) -> Tensor:
        tried.append(layout.num_tokens)
        if tried[-1] > limit:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return states(self, layout, trunk)

    monkeypatch.setattr(Encoder, "states", limited_states)
    return tried


def test_the_engine_goes_on_where_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["We the people of the United States", "A", "in order to form a more perfect union"]
    expected = [result.score for result in tiny_scorer("bert", engine="packed").score(texts)]
    tried = short_of_memory(monkeypatch, 60)
    with mlmfast.load(MODELS / "bert", engine="packed", precision="float32", workers=1) as scorer:
        found = [result.score for result in scorer.score(texts)]
    assert sum(tokens <= 60 for tokens in tried) > 3
    assert found == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    "message",
    ["CUDA error: out of memory", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"],
)
def test_memory_also_runs_out_elsewhere(message: str) -> None:
    """Not in torch's allocator."""

    def fail(batch: RowBatch) -> TargetOutputs:
        raise RuntimeError(message)

    with pytest.raises(SettingsError, match="does not hold one row of 5 tokens"):
        TokenBudget().score(random_batch([5], 1), fail)


def test_other_errors_are_not_caught() -> None:
    def fail(batch: RowBatch) -> TargetOutputs:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory access"):
        TokenBudget().score(random_batch([5], 2), fail)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [([1, 1], 1), ([9, 1, 1], 1), ([1, 1, 9], 2), ([2, 2, 2, 2], 2), ([1, 2, 3, 4, 5], 3)],
)
def test_halves_are_as_equal_as_rows_allow(lengths: list[int], expected: int) -> None:
    batch = targets_everywhere(lengths)
    first, second = halves(batch)
    assert (first.num_rows, second.num_rows) == (expected, len(lengths) - expected)
    assert first.num_tokens + second.num_tokens == sum(lengths)
    assert first.num_targets + second.num_targets == batch.num_targets
    assert len(first.input_ids) == sum(lengths[:expected])


class Device:
    """Memory for so many tokens, which others may take and give back; sizes: tokens of each call."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.sizes: list[int] = []

    def score(self, batch: RowBatch) -> TargetOutputs:
        self.sizes.append(batch.num_tokens)
        if self.sizes[-1] > self.memory:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return TargetOutputs(log_prob=np.zeros(batch.num_targets, dtype=np.float32))

    def sizes_of(self, budget: TokenBudget, batch: RowBatch) -> list[int]:
        """Of the calls for one batch, all of whose targets get a result."""
        self.sizes.clear()
        assert len(budget.score(batch, self.score).log_prob) == batch.num_targets
        return list(self.sizes)


def test_later_batches_are_no_larger_than_what_fitted() -> None:
    """Only the first one fails; larger and smaller ones, and other rows, are cut beforehand."""
    device, budget = Device(25), TokenBudget()
    batch = targets_everywhere([10] * 8)
    assert device.sizes_of(budget, batch) == [80, 40, *[20] * 4]
    assert budget.limit == 20
    assert device.sizes_of(budget, batch) == [20] * 4
    assert device.sizes_of(budget, targets_everywhere([5, 5, 5])) == [15]
    assert device.sizes_of(budget, targets_everywhere([22, 1])) == [22, 1]  # a row that cannot be cut


def test_the_budget_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It doubles after so many batches that fit, at worst too early, until there is no limit."""
    monkeypatch.setattr(packed_budget, "PATIENCE", 8)
    device, budget = Device(25), TokenBudget()
    batch = targets_everywhere([10] * 8)
    device.sizes_of(budget, batch)
    assert device.sizes_of(budget, batch) == [20] * 4
    assert budget.limit == 40
    assert device.sizes_of(budget, batch) == [40, 20, 20, 20, 20]
    assert budget.limit == 20
    device.memory = 1000
    limits = []
    for _ in range(13):
        device.sizes_of(budget, batch)
        limits.append(budget.limit)
    assert limits == [40, 40, 40, 40, *[80] * 8, None]
    assert device.sizes_of(budget, batch) == [80]


def test_the_engine_keeps_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over batches, whatever is asked of them."""
    engine = PackedEngine(tiny_scorer("bert", engine="packed").files)
    tried = short_of_memory(monkeypatch, 60)
    batch = random_batch([10] * 5, 10, vocab_size=30)
    engine.score(batch, Outputs())
    assert tried == [100, 50, 50]
    engine.score(batch, Outputs(rank=True))
    assert tried[3:] == [50, 50]
    with pytest.raises(InputError, match=r"row_text\[0\] is \d, expected 0 to 4"):  # checked before it is cut
        engine.score(replace(batch, row_text=batch.row_text + 5), Outputs())
