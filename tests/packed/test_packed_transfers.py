"""The order of copies and kernels on a GPU, with streams that only take notes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from graph_lanes import assert_same, call_again, with_graphs
from test_packed_engine import batch_for
from tiny_models import tiny_scorer

from mlmfast.engines import Outputs
from mlmfast.engines.packed import graphs as packed_graphs
from mlmfast.engines.packed import layout as packed_layout
from mlmfast.engines.packed.engine import PackedEngine
from mlmfast.engines.packed.forward import Trunk
from mlmfast.engines.packed.head import Head
from mlmfast.engines.packed.lanes import Lane, Lanes
from mlmfast.engines.packed.layout import HostArrays, host_layout
from mlmfast.scheduling.csr import offsets_of
from mlmfast.types import RowBatch


class Notes:
    """What was done on which stream, in its order; a thread has one stream at a time."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, object]] = []
        self._current = threading.local()

    @contextmanager
    def stream(self, stream: object) -> Iterator[None]:
        self._current.stream = stream
        yield
        self._current.stream = None

    def take(self, what: str) -> None:
        self.taken.append((what, self._current.stream))


@pytest.mark.parametrize(("device", "pinned"), [("cuda", True), ("cpu", False)])
def test_what_goes_to_a_gpu_lies_in_pinned_memory(
    device: str, pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, empty = [], torch.empty

    def noted(*size: int, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        asked.append(pin_memory)
        return empty(*size, **options)

    monkeypatch.setattr(torch, "empty", noted)
    arrays: HostArrays = {"ids": np.arange(3, dtype=np.int32), "types": None}
    buffer = packed_layout.in_one_buffer(arrays, torch.device(device))
    assert buffer[:12].view(torch.int32).tolist() == [0, 1, 2]
    assert asked == [pinned]


def test_one_lane_copies_while_the_other_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither's kernels end before both batches are on the device; each has its copy before its kernels."""
    notes, both = Notes(), threading.Barrier(2, timeout=60)
    in_one_buffer = packed_graphs.in_one_buffer

    def copied(arrays: HostArrays, device: torch.device) -> torch.Tensor:
        notes.take("copy")
        return in_one_buffer(arrays, device)

    def capture(function: Callable[[], Trunk]) -> Callable[[], Trunk]:
        def replay() -> Trunk:
            notes.take("kernels")
            both.wait()
            return function()

        return replay

    batches = [batch_for("bert", masked=0.05, seed=seed) for seed in range(2)]
    expected = [tiny_scorer("bert", "float32", "packed").engine.score(batch, Outputs()) for batch in batches]
    with with_graphs("bert", num_lanes=2, sizes=(2048,), capture=call_again) as (engine, _):
        own = engine._lanes
        assert own is not None
        lanes = [own._free.get(), own._free.get()]
        for lane in lanes:  # captured before anything is noted
            engine._lanes = Lanes([lane])
            engine.score(batches[0], Outputs())
            (key, captured), *_ = lane.graphs._captured.items()
            lane.graphs._captured[key] = replace(captured, replay=capture(captured.replay))
        engine._lanes = Lanes(Lane(lane.graphs, name) for lane, name in zip(lanes, "ab", strict=True))
        monkeypatch.setattr(torch.cuda, "stream", notes.stream)
        monkeypatch.setattr(packed_graphs, "in_one_buffer", copied)
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda batch: engine.score(batch, Outputs()), batches))
    for own_scores, wanted in zip(found, expected, strict=True):
        assert_same(own_scores, wanted)
    assert sorted(notes.taken) == [("copy", "a"), ("copy", "b"), ("kernels", "a"), ("kernels", "b")]
    for stream in "ab":
        assert notes.taken.index(("copy", stream)) < notes.taken.index(("kernels", stream))


def test_results_are_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """When all their copies have begun, and before any is read."""
    taken: list[object] = []

    class Column:
        def __init__(self, name: str) -> None:
            self.name = name

        def to(self, device: str, *, non_blocking: bool) -> Column:
            taken.append(("copy", self.name, device, non_blocking))
            return self

        def numpy(self) -> np.ndarray:
            taken.append(("read", self.name))
            return np.zeros(3, dtype=np.float32)

    def current_stream(device: str) -> Any:
        return SimpleNamespace(synchronize=lambda: taken.append(("wait", device)))

    columns = {name: Column(name) for name in ("log_prob", "entropy")}
    monkeypatch.setattr(Head, "columns", lambda *_: columns)
    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    engine = tiny_scorer("bert", engine="packed").engine
    assert isinstance(engine, PackedEngine)
    states: Any = SimpleNamespace(is_cuda=True, device="cuda:1")
    layout: Any = None
    engine._head(states, layout, np.zeros(1, dtype=np.int64), Outputs(entropy=True))
    assert taken == [
        ("copy", "log_prob", "cpu", True),
        ("copy", "entropy", "cpu", True),
        ("wait", "cuda:1"),
        ("read", "log_prob"),
        ("read", "entropy"),
    ]


def masked_copies(name: str, length: int, num_rows: int) -> RowBatch:
    """Of one text, where padding and masks stand among the tokens; one mask and target each."""
    special = tiny_scorer(name).files.tokenizer.special
    assert special.mask_id is not None
    ids = np.random.default_rng(length).integers(5, 25, size=length, dtype=np.int32)
    ids[1::3], ids[2::3] = special.pad_id, special.mask_id
    positions = np.arange(num_rows, dtype=np.int32) % length
    return RowBatch(
        input_ids=ids,
        text_offsets=offsets_of(np.array([length])),
        token_type_ids=None,
        row_text=np.zeros(num_rows, dtype=np.int32),
        mask_positions=positions,
        mask_offsets=np.arange(num_rows + 1),
        target_positions=positions,
        target_ids=ids[positions],
        target_offsets=np.arange(num_rows + 1),
        mask_token_id=special.mask_id,
    )


def bytes_sent(engine: PackedEngine, batch: RowBatch) -> int:
    """To the device, to score it."""
    sent: list[int] = []
    in_one_buffer = packed_layout.in_one_buffer

    def counted(arrays: HostArrays, device: torch.device) -> torch.Tensor:
        buffer = in_one_buffer(arrays, device)
        sent.append(buffer.nbytes)
        return buffer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_layout, "in_one_buffer", counted)
        engine.score(batch, Outputs())
    return sum(sent)


@pytest.mark.parametrize("name", ["bert", "roberta", "esm2"])
def test_a_copy_is_sent_without_its_text(name: str) -> None:
    """However long that is, also where positions skip padding and where masks scale the words."""
    engine = tiny_scorer(name, "float32", "packed").engine
    assert isinstance(engine, PackedEngine)
    more = []
    for length in (8, 48):
        few, many = (masked_copies(name, length, num_rows) for num_rows in (16, 80))
        assert host_layout(many, engine._spec).shares_inputs == (name == "bert")
        more.append(bytes_sent(engine, many) - bytes_sent(engine, few))
    assert more[0] == more[1] > 0
