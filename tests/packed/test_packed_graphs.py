"""Batches padded to buckets, and their graphs: on a CPU what would be captured is called again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from graph_lanes import CPU, assert_same, buckets, call_again, poison, with_graphs
from random_batches import random_batch
from student_models import make_student
from test_agreement import MASKINGS
from test_native_engine import word_safe
from test_packed_engine import EVERYTHING, batch_for
from test_packed_layout import BATCHES, SPECS, embedded, make_tables
from tiny_models import NATIVE, tiny_scorer

import mlmfast
from mlmfast.engines import Outputs
from mlmfast.engines.packed.buckets import (
    SMALL_SIZES,
    Bucket,
    bucket_for,
    padded,
    sizes_up_to,
    with_single_tokens,
)
from mlmfast.engines.packed.engine import PackedEngine
from mlmfast.engines.packed.forward import Trunk
from mlmfast.engines.packed.graphs import CudaCapture, TrunkGraphs
from mlmfast.engines.packed.lanes import Lane, Lanes
from mlmfast.engines.packed.layout import HostLayout, host_layout, on_device
from mlmfast.scheduling.batches import rows_between
from mlmfast.types import RowBatch

FEW_MASKS = {"masked": 0.05}


def log_probs(results: list[mlmfast.TextScore]) -> np.ndarray:
    return np.array([token.log_prob for result in results for token in result.tokens])


@pytest.mark.parametrize("masking", MASKINGS)
@pytest.mark.parametrize("name", NATIVE[:9])
def test_scores_are_those_without_graphs(name: str, masking: str) -> None:
    texts, scorer = word_safe(name, masking), tiny_scorer(name, "float32", "packed")
    expected = log_probs(scorer.score(texts, masking))
    with with_graphs(name) as (_, graphs):
        found = log_probs(scorer.score(texts, masking))
        assert buckets(graphs)
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-5)


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["bert", "electra", "modernbert", "esm2", "albert"])
def test_every_output_of_ragged_rows(name: str, precision: str) -> None:
    batch = batch_for(name, **FEW_MASKS)
    expected = tiny_scorer(name, precision, "packed").engine.score(batch, EVERYTHING)
    with with_graphs(name, precision) as (engine, graphs):
        found = engine.score(batch, EVERYTHING)
        assert len(buckets(graphs)) == 1
    if precision == "float32":
        assert_same(found, expected)
    else:
        np.testing.assert_allclose(found.log_prob, expected.log_prob, rtol=0, atol=0.1)


@pytest.mark.parametrize("name", ["bert", "esm2", "modernbert"])
def test_nothing_of_earlier_batches_shows(name: str) -> None:
    """Whatever the buffers hold, and in whichever order batches come; with and without token types."""
    large, other = batch_for(name, **FEW_MASKS), batch_for(name, **FEW_MASKS, seed=7)
    batches = [large, rows_between(other, 3, 14), rows_between(large, 0, 10), other]
    batches += [replace(batch, token_type_ids=None) for batch in batches]
    expected = [tiny_scorer(name, "float32", "packed").engine.score(batch, EVERYTHING) for batch in batches]
    assert all(len(batch.mask_positions) for batch in batches)
    with with_graphs(name, sizes=(2048,)) as (engine, graphs):
        for number in [0, 1, 2, 3, 2, 0, 4, 5, 0, 6, 7, 1]:
            poison(graphs)
            assert_same(engine.score(batches[number], EVERYTHING), expected[number])
        assert len(buckets(graphs)) == (2 if name == "bert" else 1)


def test_graphs_are_captured_once() -> None:
    captures: list[int] = []
    replays: list[int] = []

    def capture(function: Callable[[], Trunk]) -> Callable[[], Trunk]:
        captures.append(0)

        def replay() -> Trunk:
            replays.append(0)
            return function()

        return replay

    with with_graphs("bert", sizes=(2048,), capture=capture) as (engine, graphs):
        for rows in (10, 20, 30, 10):
            engine.score(rows_between(batch_for("bert", **FEW_MASKS), 0, rows), Outputs())
        unmasked = batch_for("bert", masked=0.0)
        engine.score(replace(unmasked, mask_token_id=-1), Outputs())
        assert buckets(graphs) == [Bucket(2048, 256, 256), Bucket(2048, 2048, 0)]
    assert (len(captures), len(replays)) == (2, 5)


def test_batches_that_fit_no_bucket_run_without() -> None:
    batch = batch_for("bert", masked=0.5)
    expected = tiny_scorer("bert", "float32", "packed").engine.score(batch, EVERYTHING)
    with with_graphs("bert", sizes=(512,)) as (engine, graphs):
        assert_same(engine.score(batch, EVERYTHING), expected, bound=0)
        assert not buckets(graphs)


@pytest.mark.parametrize("head", ["token", "cls"])
def test_a_student(head: str, tmp_path: Path) -> None:
    """Without a mask token: no padded masks."""
    folder = make_student(tmp_path / "student", "bert", head)
    batch = replace(batch_for("bert", masked=0.0), mask_token_id=-1)
    with mlmfast.load(folder, engine="packed", precision="float32", workers=1) as scorer:
        expected = scorer.engine.score(batch, Outputs())
        engine = scorer.engine
        graphs = TrunkGraphs(engine._encoder, (512,), engine.max_length, CPU, call_again)
        engine._lanes = Lanes([Lane(graphs, None)])
        assert_same(engine.score(batch, Outputs()), expected)
        assert buckets(graphs) == [Bucket(512, 512, 0)]


def test_no_capture_is_tried_after_one_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    """Batches run without, and what was captured before still serves."""
    tried: list[int] = []

    def fail_after_one(function: Callable[[], Trunk]) -> Callable[[], Trunk]:
        tried.append(0)
        if len(tried) > 1:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return function

    large = batch_for("bert", **FEW_MASKS)
    batches = [rows_between(large, 0, 10), replace(large, token_type_ids=None), large]
    engine = tiny_scorer("bert", "float32", "packed").engine
    expected = [engine.score(batch, EVERYTHING) for batch in batches]
    with with_graphs("bert", sizes=(2048,), capture=fail_after_one) as (engine, graphs):
        for number in (0, 1, 1, 2, 0):
            assert_same(engine.score(batches[number], EVERYTHING), expected[number])
        assert len(buckets(graphs)) == 1
    assert len(tried) == 2
    assert caplog.text.count("no more CUDA graphs are captured: CUDA out of memory") == 1


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("kind", ["shared", "dropout"])
@pytest.mark.parametrize("spare", [1, 2, 40])
def test_padded_inputs_begin_with_the_real_ones(batch: RowBatch, kind: str, spare: int) -> None:
    """And the rest are rows of a token of the model's each, but for one of masks."""
    spec, tables = SPECS[kind], make_tables()
    host = host_layout(batch, spec)
    bucket = Bucket(
        host.num_tokens + spare, len(batch.input_ids) + 3, len(batch.mask_positions) + (spare > 1)
    )
    assert bucket.holds(host)
    inputs = padded(host, bucket)
    larger = replace(host, inputs=inputs, num_tokens=bucket.num_tokens).layout(
        on_device(inputs | host.places, CPU)
    )
    assert larger.row_starts.diff().tolist()[len(batch.row_text) :] == [1] * spare + [0] * (
        bucket.num_tokens - spare - len(batch.row_text)
    )
    found = embedded(larger, tables)
    assert found.shape == (bucket.num_tokens, 12)
    assert found.isfinite().all()
    torch.testing.assert_close(
        found[: host.num_tokens], embedded(host.on_device(CPU), tables), rtol=1e-6, atol=1e-6
    )


def test_single_tokens_after_rows() -> None:
    offsets = np.array([0, 3, 4], dtype=np.int32)
    assert with_single_tokens(offsets, 7).tolist() == [0, 3, 4, 5, 6, 7, 7, 7]
    assert with_single_tokens(offsets, 4).tolist() == [0, 3, 4, 4, 4]
    assert with_single_tokens(offsets[:1], 2).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("most", "sizes"),
    [
        (65536, (512, 1024, 2048, 4096, 65536)),
        (4096, SMALL_SIZES),
        (600, (512, 600)),
        (100, (100,)),
    ],
)
def test_sizes(most: int, sizes: tuple[int, ...]) -> None:
    assert sizes_up_to(most) == sizes


def host_of(num_texts: int, length: int, copies: int, masked: float = 0.0) -> HostLayout:
    batch = random_batch([length] * num_texts, num_texts * copies, masked=masked)
    return host_layout(batch, replace(SPECS["shared"], max_length=10_000))


@pytest.mark.parametrize(
    ("host", "bucket"),
    [
        (host_of(1, 10, 10), Bucket(512, 512, 0)),
        (host_of(1, 511, 1), Bucket(512, 512, 0)),
        (host_of(1, 512, 1), Bucket(1024, 1024, 0)),
        (host_of(4, 20, 20, 0.05), Bucket(2048, 256, 256)),
        (host_of(30, 10, 1, 0.1), Bucket(4096, 512, 512)),  # 300 tokens of texts
        (host_of(1, 4096, 1), None),
        (host_of(1, 6999, 1), None),
        (host_of(1, 7000, 1), Bucket(8000, 8000, 0)),
        (host_of(1, 7999, 1), Bucket(8000, 8000, 0)),
        (host_of(1, 8000, 1), None),
    ],
)
def test_the_bucket_of_a_batch(host: HostLayout, bucket: Bucket | None) -> None:
    assert bucket_for(host, sizes_up_to(8000)) == bucket


def test_skipped_positions_have_no_bucket() -> None:
    host = host_layout(BATCHES["ragged"], SPECS["skipping"])
    assert host.position_skip_id is not None
    assert bucket_for(host, SMALL_SIZES) is None


def test_lanes_are_held_by_one_thread_each() -> None:
    """More threads than lanes: never more batches under way, and all get done, also after an error."""
    with with_graphs("bert", num_lanes=2) as (engine, _):
        lanes = engine._lanes
        assert lanes is not None
        held: list[TrunkGraphs] = []
        both = threading.Barrier(2, timeout=60)

        def hold(number: int) -> None:
            with lanes.one() as graphs:
                held.append(graphs)
                both.wait()
                if number % 3 == 0:
                    raise ValueError

        with ThreadPoolExecutor(5) as pool:
            done = [pool.submit(hold, number) for number in range(10)]
            failed = [isinstance(one.exception(), ValueError) for one in done]
        assert failed == [number % 3 == 0 for number in range(10)]
        assert len({id(graphs) for graphs in held}) == 2


def test_a_capture_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls alone, as there is no GPU: kernels run once before they are captured, and then only again."""
    events: list[object] = []

    class Graph:
        def replay(self) -> None:
            events.append("replay")

    @contextmanager
    def capturing(graph: object, pool: object, stream: object, capture_error_mode: str) -> Iterator[None]:
        assert isinstance(graph, Graph)
        events.append((pool, stream, capture_error_mode))
        yield
        events.append("end")

    def function() -> Trunk:
        events.append("launch")
        return torch.zeros(len(events)), torch.zeros(0)

    for name, fake in {
        "CUDAGraph": Graph,
        "graph": capturing,
        "graph_pool_handle": lambda: "pool",
        "current_stream": lambda: "stream",
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    capture = CudaCapture()
    replay = capture(function)
    assert events == ["launch", ("pool", "stream", "thread_local"), "launch", "end"]
    assert len(replay()[0]) == len(replay()[0]) == 3
    assert events[4:] == ["replay", "replay"]
    capture(function)
    assert events[6:] == ["launch", ("pool", "stream", "thread_local"), "launch", "end"]


def test_lanes_of_a_gpu_share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_scorer("bert", "float32", "packed").engine
    assert isinstance(engine, PackedEngine)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: object())
    entered: list[object] = []
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext(entered.append(stream)))
    lanes = engine._cuda_lanes(5000)
    with lanes.one() as first, lanes.one() as second:
        assert first._sizes == second._sizes == (*SMALL_SIZES, 5000)
        assert first._captured is not second._captured
        assert first._capture._pool is not second._capture._pool
    assert len(set(entered)) == 2


def test_threads_beside_one_another_give_the_same() -> None:
    batches = [batch_for("bert", **FEW_MASKS, seed=seed) for seed in range(6)]
    expected = [tiny_scorer("bert", "float32", "packed").engine.score(batch, EVERYTHING) for batch in batches]
    with with_graphs("bert", num_lanes=2) as (engine, _), ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            for found, wanted in zip(
                pool.map(lambda batch: engine.score(batch, EVERYTHING), batches), expected, strict=True
            ):
                assert_same(found, wanted)
