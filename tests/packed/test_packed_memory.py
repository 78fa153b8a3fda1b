"""The memory of a batch: its formula against counted bytes, budgets, and halving when it runs out."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from random_batches import random_batch
from tiny_models import MODELS, tiny_scorer
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import mlmfast
from mlmfast import _core
from mlmfast.engines import Outputs, base
from mlmfast.engines.packed import engine as packed_engine
from mlmfast.engines.packed.forward import Encoder, Trunk
from mlmfast.engines.packed.graphs import TrunkGraphs
from mlmfast.engines.packed.layout import host_layout
from mlmfast.engines.packed.memory import (
    HEAD_BYTES,
    INDEX_BYTES,
    MOST_BATCH_TOKENS,
    bytes_per_token,
    fitting_size,
    graph_bytes_per_token,
    halves,
    score_within_memory,
    size_within,
)
from mlmfast.engines.packed.spec import EncoderSpec
from mlmfast.engines.packed.weights import read_weights
from mlmfast.errors import MlmfastError, SettingsError
from mlmfast.kernels.encoder_inputs import EmbeddingTables, Layout, Norm
from mlmfast.kernels.encoder_ops import EncoderOperators
from mlmfast.types import RowBatch, TargetOutputs

CPU = torch.device("cpu")
MODELS_OF_EACH_KIND = ("bert", "electra", "albert", "modernbert", "esm2", "xlm-roberta")


class AllocatedBytes(TorchDispatchMode):
    """The most memory that tensors made in its context take at once."""

    def __init__(self) -> None:
        super().__init__()
        self._live: dict[int, int] = {}
        self.most = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                storage = leaf.untyped_storage()
                key = storage._cdata
                if key not in self._live:
                    self._live[key] = storage.nbytes()
                    weakref.finalize(storage, self._live.pop, key)
        self.most = max(self.most, sum(self._live.values()))
        return result


def only_outputs() -> EncoderOperators:
    """Operators that allocate what kernels must, their outputs, and compute nothing."""

    def embed_inputs(layout: Layout, tables: EmbeddingTables) -> Tensor:
        return torch.zeros(layout.num_inputs, tables.word.shape[1])

    def expand_index(layout: Layout) -> Tensor:
        return torch.zeros(layout.num_tokens, dtype=torch.int32)

    def expand_rows(pool: Tensor, index: Tensor) -> Tensor:
        return pool.new_zeros(len(index), pool.shape[1])

    def add_norm(
        x: Tensor, delta: Tensor | None, norm: Norm | None, normalise_in_place: bool, dtype: torch.dtype
    ) -> Tensor:
        return torch.zeros(x.shape, dtype=dtype)

    def activation(inner: Tensor, kind: str, gated: bool) -> Tensor:
        return inner.new_zeros(len(inner), inner.shape[1] // (2 if gated else 1))

    def rotate(vectors: Tensor, positions: Tensor, cosines: Tensor, sines: Tensor) -> None:
        pass

    def attention(queries: Tensor, *_: object) -> Tensor:
        return queries.new_zeros(queries.shape)

    return EncoderOperators(
        "none", embed_inputs, expand_index, expand_rows, add_norm, activation, rotate, attention
    )


def counted_bytes(name: str, dtype: torch.dtype, batch: RowBatch) -> tuple[int, EncoderSpec]:
    """Of a packed token, in one forward."""
    stored = _core.read_encoder(str(MODELS / name))
    spec = EncoderSpec.of(stored["spec"])
    encoder = Encoder(spec, read_weights(stored["tensors"], spec, dtype, CPU), only_outputs(), dtype)
    with torch.inference_mode(), AllocatedBytes() as allocated:
        layout = host_layout(batch, spec).on_device(CPU)
        encoder.states(layout)
    return allocated.most // layout.num_tokens, spec


def targets_everywhere(lengths: list[int]) -> RowBatch:
    """A row of each text, all of it masked and asked for: the most that a batch can ask."""
    batch = random_batch(lengths, len(lengths), vocab_size=30, masked=1.0)
    positions = np.concatenate([np.arange(length, dtype=np.int32) for length in lengths])
    return replace(
        batch,
        row_text=np.arange(len(lengths), dtype=np.int32),
        target_positions=positions,
        target_ids=np.zeros_like(positions),
        target_offsets=batch.text_offsets,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MODELS_OF_EACH_KIND)
def test_the_formula_bounds_what_is_allocated(name: str, dtype: torch.dtype) -> None:
    most, spec = counted_bytes(name, dtype, targets_everywhere([20] * 50))
    bound = bytes_per_token(spec, dtype)
    assert bound / 2 < most < bound
    usual, _ = counted_bytes(name, dtype, random_batch([30], 30, vocab_size=30, masked=0.03, most_targets=1))
    assert usual < bound


def test_bytes_of_known_shapes() -> None:
    """By hand: BERT-base, with a network no wider than it, and with a wide gated one."""
    bert = replace(spec_of("bert"), embedding_size=768, hidden_size=768, intermediate_size=3072)
    assert bytes_per_token(bert, torch.bfloat16) == 128 + 4 * 768 + 2 * 2 * 768 + 2 * 2 * 3072
    narrow = replace(bert, intermediate_size=768)
    assert bytes_per_token(narrow, torch.bfloat16) == 128 + 4 * 768 + 9 * 2 * 768
    gated = replace(bert, gated=True, intermediate_size=8000)
    assert bytes_per_token(gated, torch.float32) == 128 + 4 * 768 + 2 * 4 * 768 + 3 * 4 * 8000


@pytest.mark.parametrize(
    ("free_gib", "expected"),
    [(80, MOST_BATCH_TOKENS), (4, 22_086), (2, 4906), (0.1, 2), (0, 2)],
)
def test_sizes_within_free_memory(free_gib: float, expected: int) -> None:
    """By hand: two lanes; 20 kB a token twice, 5 kB in two buckets of each size, of which the small ones have
    2 * 7680 tokens."""
    found = size_within(int(free_gib * 2**30), 20_000, 5_000)
    assert found == expected
    if 2 < found < MOST_BATCH_TOKENS:
        taken = 2 * (HEAD_BYTES + 2 * 7680 * 5_000 + found * 50_000)
        assert 0.8 * free_gib * 2**30 - 2 * 50_000 < taken <= 0.8 * free_gib * 2**30


def test_the_size_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of("bert")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3 * 2**29, 2**35))
    size = fitting_size(spec, torch.float32, torch.device("cuda"))
    assert size == size_within(
        3 * 2**29, bytes_per_token(spec, torch.float32), graph_bytes_per_token(spec, torch.float32)
    )
    assert 2 < size < MOST_BATCH_TOKENS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MODELS_OF_EACH_KIND)
def test_what_a_graph_keeps(name: str, dtype: torch.dtype) -> None:
    """Of a token: its inputs, x and y."""
    stored = _core.read_encoder(str(MODELS / name))
    spec = EncoderSpec.of(stored["spec"])
    encoder = Encoder(spec, read_weights(stored["tensors"], spec, dtype, CPU), only_outputs(), dtype)
    kept: list[Trunk] = []

    def capture(function: Callable[[], Trunk]) -> Callable[[], Trunk]:
        kept.append(function())
        return lambda: kept[0]

    graphs = TrunkGraphs(encoder, (512,), spec.max_length, CPU, capture)
    with torch.inference_mode():
        batch = random_batch([10] * 5, 20, vocab_size=30, masked=0.1)
        loaded = graphs.load(host_layout(batch, replace(spec, position_skip_id=-1)))
    assert loaded is not None
    (captured,) = graphs._captured.values()
    taken = captured.buffer.nbytes + sum(tensor.nbytes for tensor in kept[0])
    bound = 512 * graph_bytes_per_token(spec, dtype)
    assert bound - 512 * INDEX_BYTES < taken <= bound


def test_weights_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(packed_engine, "read_weights", fail)
    reason = r"the memory of cpu does not hold the model's weights in float32: .*precision='bfloat16'"
    for engine in ("packed", "auto"):
        with monkeypatch.context() as patch:
            patch.setattr(base, "NVIDIA_DRIVER", Path("/"))
            patch.setattr(packed_engine, "choose_device", lambda device: CPU)
            with pytest.raises(MlmfastError, match=reason):
                mlmfast.load(MODELS / "bert", engine=engine)


def spec_of(name: str) -> EncoderSpec:
    return EncoderSpec.of(_core.read_encoder(str(MODELS / name))["spec"])


def limited(limit: int, tried: list[int]) -> Callable[[RowBatch], TargetOutputs]:
    """An engine for whose memory more than `limit` tokens are too many; tried: the tokens of each call."""
    engine = tiny_scorer("bert", engine="packed").engine

    def score(batch: RowBatch) -> TargetOutputs:
        tried.append(num_tokens(batch))
        if tried[-1] > limit:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return engine.score(batch, Outputs(rank=True))

    return score


def num_tokens(batch: RowBatch) -> int:
    return int(np.diff(batch.text_offsets)[batch.row_text].sum())


@pytest.mark.parametrize("limit", [1000, 150, 40])
def test_a_batch_that_does_not_fit_is_halved(limit: int) -> None:
    batch = random_batch([5, 1, 30, 2, 12], 25, vocab_size=30)
    total = num_tokens(batch)
    whole = tiny_scorer("bert", engine="packed").engine.score(batch, Outputs(rank=True))
    tried: list[int] = []
    found = score_within_memory(batch, limited(limit, tried))
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
        score_within_memory(batch, limited(29, []))


def test_the_engine_goes_on_where_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["We the people of the United States", "A", "in order to form a more perfect union"]
    expected = [result.score for result in tiny_scorer("bert", engine="packed").score(texts)]
    computed: list[int] = []
    states = Encoder.states

    def short_of_memory(self: Encoder, layout: Layout, trunk: None) -> Tensor:
        if layout.num_tokens > 60:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        computed.append(layout.num_tokens)
        return states(self, layout, trunk)

    monkeypatch.setattr(Encoder, "states", short_of_memory)
    found = [result.score for result in tiny_scorer("bert", engine="packed").score(texts)]
    assert len(computed) > 3
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
        score_within_memory(random_batch([5], 1), fail)


def test_other_errors_are_not_caught() -> None:
    def fail(batch: RowBatch) -> TargetOutputs:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory access"):
        score_within_memory(random_batch([5], 2), fail)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [([1, 1], 1), ([9, 1, 1], 1), ([1, 1, 9], 2), ([2, 2, 2, 2], 2), ([1, 2, 3, 4, 5], 3)],
)
def test_halves_are_as_equal_as_rows_allow(lengths: list[int], expected: int) -> None:
    batch = targets_everywhere(lengths)
    first, second = halves(batch)
    assert (first.num_rows, second.num_rows) == (expected, len(lengths) - expected)
    assert num_tokens(first) + num_tokens(second) == sum(lengths)
    assert first.num_targets + second.num_targets == batch.num_targets
    assert len(first.input_ids) == sum(lengths[:expected])
