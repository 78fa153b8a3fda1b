"""The packed engine's launches as on a GPU, without one. Run by test_packed_launches.

Tensors of torch's meta device, which have shapes but no data, are taken for a GPU's: a step that reads a
result on the host fails. Kernels are compiled for compute capability 9.0 as their launches ask, and not run.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import pytest
import torch
from random_batches import random_batch, targets_everywhere
from tiny_models import MODELS
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from mlmfast import _core
from mlmfast.engines import Outputs
from mlmfast.engines.packed.buckets import sizes_up_to
from mlmfast.engines.packed.forward import Encoder
from mlmfast.engines.packed.graphs import TrunkGraphs
from mlmfast.engines.packed.head import Head
from mlmfast.engines.packed.layout import host_layout
from mlmfast.engines.packed.memory import MOST_BATCH_TOKENS
from mlmfast.engines.packed.spec import EncoderSpec
from mlmfast.engines.packed.weights import EncoderWeights, VocabularyHead, read_weights
from mlmfast.kernels import attention_triton, encoder_triton, score_triton
from mlmfast.kernels.encoder_ops import encoder_operators
from mlmfast.kernels.triton import launch
from mlmfast.types import RowBatch

META = torch.device("meta")
MULTIPROCESSORS = 132
GREATEST_GRID, GREATEST_OTHER_GRID = 2**31 - 1, 65535
"""Of the first dimension, and of the second and third (CUDA C++ programming guide, table of limits)."""
LARGEST_VOCABULARY = 250_002
"""XLM-R's."""
RUNS = [
    ("bert", torch.bfloat16),
    ("bert", torch.float32),
    ("roberta", torch.float16),
    ("albert", torch.bfloat16),
    ("electra", torch.bfloat16),
    ("modernbert", torch.bfloat16),
    ("esm2", torch.bfloat16),
]


class Hopper:
    """What triton asks of a driver before it launches."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


@dataclass(frozen=True)
class Pointer:
    """A tensor as triton's launches see it."""

    dtype: torch.dtype
    address: int

    def data_ptr(self) -> int:
        return self.address


class Launches:
    """The distinct compiled kernels of the launches so far, by their functions' names."""

    def __init__(self) -> None:
        self.compiled: set[tuple[str, str]] = set()
        self._run = JITFunction.run

    def launch(self, kernel: JITFunction, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
        assert 1 <= grid[0] <= GREATEST_GRID
        assert all(1 <= size <= GREATEST_OTHER_GRID for size in grid[1:])
        values = [pointer(value) if isinstance(value, torch.Tensor) else value for value in arguments]
        compiled = self._run(kernel, *values, grid=grid, warmup=True, **options)
        self.compiled.add((kernel.__name__, compiled.hash))

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.compiled}


def pointer(tensor: torch.Tensor) -> Pointer:
    assert tensor.device == META, "a kernel was given a tensor of the host"
    assert tensor.stride(-1) == 1, tensor.stride()
    return Pointer(tensor.dtype, tensor.storage_offset() * tensor.itemsize)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    found = Launches()
    monkeypatch.setattr(
        JITFunction, "run", lambda kernel, *args, **named: found.launch(kernel, *args, **named)
    )
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: tensor.device == META))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    for module in (attention_triton, encoder_triton, score_triton):
        monkeypatch.setattr(module, "on_device_of", lambda tensor: contextlib.nullcontext())
    for module in (attention_triton, launch):
        monkeypatch.setattr(module, "num_multiprocessors", lambda device: MULTIPROCESSORS)
    driver.set_active(Hopper())  # for good: these checks have a process of their own
    return found


def on_meta(value: Any) -> Any:
    """Without the data of its tensors."""
    if isinstance(value, torch.Tensor):
        return value.to(META)
    if isinstance(value, tuple):
        return tuple(on_meta(part) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: on_meta(getattr(value, field.name)) for field in fields(value)})
    return value


def forward(
    name: str,
    dtype: torch.dtype,
    *batches: RowBatch,
    padded: bool = False,
    most_tokens: int = 600,
    vocab_size: int | None = None,
) -> None:
    """padded: as for graphs, whose largest bucket has most_tokens. vocab_size: None is the model's own."""
    stored = _core.read_encoder(str(MODELS / name))
    spec = EncoderSpec.of(stored["spec"])
    weights = on_meta(read_weights(stored["tensors"], spec, dtype, torch.device("cpu")))
    if vocab_size is not None:
        spec = replace(spec, vocab_size=vocab_size)
        weights = with_vocabulary(weights, vocab_size)
    operators = encoder_operators("triton")
    encoder, head = Encoder(spec, weights, operators, dtype), Head(spec, weights.head, operators, dtype)
    graphs = TrunkGraphs(encoder, sizes_up_to(most_tokens), spec.max_length, META, lambda function: function)
    for batch in batches:
        host = host_layout(batch, spec)
        loaded = graphs.load(host) if padded else (host.on_device(META), None)
        assert loaded is not None
        states = encoder.states(*loaded)
        layout = loaded[0]
        assert states.shape == (len(layout.place_token), spec.hidden_size)
        outputs = Outputs(rank=True, entropy=True, logit=True)
        columns = head.columns(states, layout, host.target_offsets, outputs)
        assert columns.keys() == {"log_prob", "rank", "entropy", "logit"}
        for column in columns.values():
            assert column.shape == (batch.num_targets,)
            assert column.device == META
        top = head.columns(states, layout, host.target_offsets, Outputs(top_k=3))
        assert top["top_ids"].shape == top["top_log_probs"].shape == (batch.num_targets, 3)


def with_vocabulary(weights: EncoderWeights, size: int) -> EncoderWeights:
    """Of other words."""
    table, head = weights.tables.word, weights.head
    assert isinstance(head, VocabularyHead)
    assert head.decoder_bias is not None
    return replace(
        weights,
        tables=replace(weights.tables, word=table.new_empty(size, table.shape[1])),
        head=replace(
            head,
            decoder_weight=head.decoder_weight.new_empty(size, head.decoder_weight.shape[1]),
            decoder_bias=head.decoder_bias.new_empty(size),
        ),
    )


def batch_of(text_lengths: list[int], num_rows: int, seed: int, **settings: Any) -> RowBatch:
    """Of tokens that every model takes and counts."""
    return random_batch(text_lengths, num_rows, vocab_size=30, mask_id=4, seed=seed, **settings)


@pytest.mark.parametrize(("name", "dtype"), RUNS)
def test_every_launch_compiles_and_nothing_is_read_on_the_host(
    name: str, dtype: torch.dtype, launches: Launches
) -> None:
    forward(name, dtype, batch_of([5, 1, 30], 7, seed=5, with_types=name == "bert"))
    assert launches.names >= {
        *("embed_kernel", "text_index_kernel", "mask_index_kernel", "expand_kernel"),
        *("add_norm_kernel", "activation_kernel", "attention_kernel"),
        *("target_sweep_kernel", "row_kernel", "score_kernel", "rank_kernel"),
    }
    assert ("rotate_kernel" in launches.names) == (name in ("modernbert", "esm2"))


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_no_kernel_is_compiled_again_for_another_batch(name: str, launches: Launches) -> None:
    """Whatever its sizes: odd, multiples of 16, 1. But for attention, which has a tile of its own for few
    places; both are met in the first batches."""
    forward(
        name, torch.bfloat16, batch_of([5, 9, 30], 7, seed=5), batch_of([30] * 4, 40, seed=1, most_targets=1)
    )
    before = set(launches.compiled)
    for lengths, num_rows, masked in (([16] * 16, 16, 0.5), ([1], 1, 1.0), ([3, 8], 64, 0.2), ([17], 3, 0.0)):
        batch = batch_of(lengths, num_rows, seed=2, masked=masked)
        forward(name, torch.bfloat16, batch)
        if sum(lengths) < 64:
            forward(name, torch.bfloat16, batch, padded=True)
    assert launches.compiled == before


ROWS, LENGTH = MOST_BATCH_TOKENS // 64 - 1, 64
FULL = {
    "copies of texts": (batch_of([LENGTH] * 64, ROWS, seed=3, masked=1 / LENGTH), True),
    "targets everywhere": (targets_everywhere([LENGTH] * ROWS), False),
    "a token a row": (batch_of([1] * 8, ROWS * LENGTH, seed=4), False),
}
"""And whether a bucket for graphs holds it."""


@pytest.mark.parametrize(("batch", "padded"), FULL.values(), ids=FULL)
def test_full_batches_and_the_largest_vocabulary(batch: RowBatch, padded: bool, launches: Launches) -> None:
    options = {"most_tokens": MOST_BATCH_TOKENS, "vocab_size": LARGEST_VOCABULARY}
    for fill_up in {False, padded}:
        forward("bert", torch.bfloat16, batch, padded=fill_up, **options)
    assert launches.names >= {"expand_kernel", "attention_kernel", "target_sweep_kernel", "rank_kernel"}
