"""The memory of a batch: its formula against counted bytes, and what fits a device."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from random_batches import random_batch, targets_everywhere
from tiny_models import MODELS
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import mlmfast
from mlmfast import _core
from mlmfast.engines import base
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
    size_within,
)
from mlmfast.engines.packed.spec import EncoderSpec
from mlmfast.engines.packed.weights import read_weights
from mlmfast.errors import MlmfastError
from mlmfast.kernels import score_chunked
from mlmfast.kernels.encoder_inputs import EmbeddingTables, Layout, Norm
from mlmfast.kernels.encoder_ops import EncoderOperators
from mlmfast.kernels.encoder_torch import linear
from mlmfast.kernels.rules import ScoringRule
from mlmfast.kernels.score_chunked import ScoreRequest
from mlmfast.types import RowBatch

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

    def linear_activation(x: Tensor, weight: Tensor, bias: Tensor | None, kind: str, gated: bool) -> Tensor:
        return activation(linear(x, weight, bias), kind, gated)

    def rotate(vectors: Tensor, positions: Tensor, cosines: Tensor, sines: Tensor) -> None:
        pass

    def attention(queries: Tensor, *_: object) -> Tensor:
        return queries.new_zeros(queries.shape)

    return EncoderOperators(
        *("none", embed_inputs, expand_index, expand_rows, add_norm),
        *(activation, linear_activation, rotate, attention),
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


@pytest.mark.parametrize(
    "request_",
    [
        ScoreRequest(rules=(ScoringRule("log"),), topk=10),
        ScoreRequest(rules=(ScoringRule("log"),), topk=10, rank=True, entropy=True, lse=True),
    ],
    ids=["top-k", "everything"],
)
@pytest.mark.parametrize("num_places", [1, 50, 400])
def test_the_most_probable_classes_take_no_more_for_more_places(
    num_places: int, request_: ScoreRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the layer and the results: the logits of all 400 places would take eight times the chunk."""
    chunk_bytes, vocab_size = 1 << 22, 20_000
    monkeypatch.setattr(score_chunked, "CHUNK_BYTES", chunk_bytes)
    features, decoder = torch.randn(num_places, 8), torch.randn(vocab_size, 8)
    ids, offsets = torch.randint(vocab_size, (num_places,)), torch.arange(num_places + 1)
    with torch.inference_mode(), AllocatedBytes() as allocated:
        found = score_chunked.score(features, decoder, None, ids, offsets, request_)
    read_and_written = sum(x.nbytes for x in (features, decoder, ids, offsets, *found))
    assert found.top_ids.shape == (num_places, 10)
    assert allocated.most - read_and_written <= 1.02 * chunk_bytes
    assert score_chunked.CUDA_CHUNK_BYTES <= HEAD_BYTES / 2


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
