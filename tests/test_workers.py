"""Who computes: workers, or for one small batch the thread that asks for it. The results are the same."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable

import pytest
from hash_engine import HashEngine, files_of
from hypothesis import given, settings
from hypothesis import strategies as st

from mlmfast import window_groups
from mlmfast.engines import Outputs
from mlmfast.engines.base import Immediate
from mlmfast.errors import SettingsError
from mlmfast.scorer import Scorer
from mlmfast.types import RowBatch, TargetOutputs

SMALL, LARGE = "We", "We the people of the United States"
TEXTS = st.lists(st.sampled_from([SMALL, "", "the people", LARGE]), max_size=5)


class ImmediateEngine(HashEngine):
    """Notes the threads that compute."""

    max_immediate_tokens = 12

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.before = before
        self.threads: list[threading.Thread] = []

    def score(self, batch: RowBatch, outputs: Outputs) -> TargetOutputs:
        self.threads.append(threading.current_thread())
        self.before()
        return super().score(batch, outputs)


def scorer_with(engine: HashEngine) -> Scorer:
    return Scorer(files_of("bert"), engine, workers=1)


def in_caller(engine: ImmediateEngine) -> list[bool]:
    return [thread is threading.current_thread() for thread in engine.threads]


def test_engines_say_whether_they_are_immediate() -> None:
    assert isinstance(ImmediateEngine(), Immediate)
    assert not isinstance(HashEngine(), Immediate)


def test_one_small_batch_is_computed_by_the_caller_and_others_by_workers() -> None:
    for text, expected in ((SMALL, [True]), (LARGE, [False])):
        with scorer_with(engine := ImmediateEngine()) as scorer:
            scorer.score([text])
        assert in_caller(engine) == expected
    with Scorer(files_of("bert"), engine := ImmediateEngine(), workers=1, max_batch_tokens=4) as scorer:
        scorer.score(["the people"])  # two batches
    assert in_caller(engine) == [False, False]


@settings(deadline=None, max_examples=25)
@given(texts=TEXTS, window=st.integers(1, 3))
def test_results_are_those_of_workers(texts: list[str], window: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_groups, "WINDOW_TEXTS", window)
        with scorer_with(ImmediateEngine()) as scorer, scorer_with(HashEngine()) as other:
            found, expected = scorer.score(texts), other.score(texts)
    assert found == expected
    assert [r.tokens for r in found] == [r.tokens for r in expected]


def test_rows_computed_one_by_one_go_the_same_way() -> None:
    with scorer_with(engine := ImmediateEngine()) as scorer:
        window = scorer.prepare(["the people"])
        for row in range(window.num_rows):
            scorer.compute(window, window.batches[0][row : row + 1])
        assert in_caller(engine) == [True] * window.num_rows
        assert window.results() == scorer.score(["the people"])


def test_an_error_comes_after_the_windows_before_it_and_leaves_the_scorer_usable() -> None:
    def refuse() -> None:
        if len(engine.threads) == 2:
            raise RuntimeError("out of memory")

    with pytest.MonkeyPatch.context() as patch, scorer_with(engine := ImmediateEngine(refuse)) as scorer:
        patch.setattr(window_groups, "WINDOW_TEXTS", 1)
        results = scorer.score_iter([SMALL, "people", "the"])
        assert next(results).text == SMALL
        with pytest.raises(RuntimeError, match="out of memory"):
            next(results)
        assert scorer.score([SMALL])[0].error is None
    assert in_caller(engine) == [True] * 3


def test_an_interrupted_caller_can_go_on() -> None:
    def interrupt() -> None:
        if len(engine.threads) == 1:
            raise KeyboardInterrupt

    with scorer_with(engine := ImmediateEngine(interrupt)) as scorer:
        with pytest.raises(KeyboardInterrupt):
            scorer.score([SMALL])
        assert scorer.score([SMALL])[0].num_tokens == 1
    assert in_caller(engine) == [True, True]


class Held:
    """A thread that stands still in the engine, computing a small batch as a caller."""

    def __init__(self) -> None:
        self.computes, self.may_go = threading.Event(), threading.Event()
        self.engine = ImmediateEngine(self.stand_still)
        self.scorer = scorer_with(self.engine)
        self.thread = threading.Thread(target=lambda: self.scorer.score([SMALL]))

    def stand_still(self) -> None:
        if threading.current_thread() is self.thread:
            self.computes.set()
            assert self.may_go.wait(60)

    def __enter__(self) -> Held:
        self.thread.start()
        assert self.computes.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.may_go.set()
        self.thread.join(60)
        self.scorer.close()


def test_while_another_caller_computes_a_worker_does() -> None:
    with Held() as held:
        assert held.scorer.score([SMALL])[0].num_tokens == 1
        assert held.engine.threads[0] is held.thread
        assert held.engine.threads[1].name.startswith("mlmfast")


def test_a_closed_scorer_says_so_while_a_caller_computes() -> None:
    with Held() as held:
        half_read = held.scorer.score_iter([SMALL])
        held.scorer.close()
        with pytest.raises(SettingsError, match="was closed"):
            next(half_read)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_while_a_caller_computes_can_score() -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with Held() as held:
        child = context.Process(
            target=lambda: queue.put([held.scorer.score([SMALL])[0].score, in_caller(held.engine)[-1]])
        )
        child.start()
        score, by_caller = queue.get(timeout=60)
        child.join(timeout=60)
    with scorer_with(HashEngine()) as other:
        assert score == other.score([SMALL])[0].score
    assert by_caller


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_was_begun_before_a_fork_goes_on_in_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the child scores something else before that is computed."""
    monkeypatch.setattr(window_groups, "WINDOW_TEXTS", 1)
    parent = os.getpid()

    def score_another_first() -> None:
        if os.getpid() != parent and len(engine.threads) == 2:
            scorer.score([SMALL])

    def child() -> None:
        try:
            queue.put([result.score for result in results])
        except Exception as error:
            queue.put(repr(error))

    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with scorer_with(engine := ImmediateEngine(score_another_first)) as scorer:
        results = scorer.score_iter(["people", SMALL])
        expected = [next(results).score]
        process = context.Process(target=child)
        process.start()
        found = queue.get(timeout=60)
        process.join(timeout=60)
        expected += [result.score for result in results]
    assert found == expected[1:]
