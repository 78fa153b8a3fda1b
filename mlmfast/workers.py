"""Windows through an engine: one worker per core, each taking whole batches, results in input order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Protocol

from mlmfast.engines import Engine, Outputs
from mlmfast.engines.base import Immediate
from mlmfast.errors import SettingsError
from mlmfast.types import Int64Array, RowBatch, TargetOutputs
from mlmfast.windows import Window

Computed = tuple[TargetOutputs, Int64Array]
"""A batch's results and where they go."""
WINDOWS_AHEAD = 2
"""Windows under way at once: the next is prepared while one is computed."""


def available_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class RowSource(Protocol):
    """Rows that workers can compute; a `Window` is one."""

    def batches_of(self, rows: Int64Array) -> list[Int64Array]:
        """Some of the rows, int64[r], as batches of row indices."""

    def batch(self, indices: Int64Array) -> tuple[RowBatch, Int64Array]:
        """A batch as an engine takes it, and int64[t], where the results of its targets go."""

    def scatter(self, found: TargetOutputs, slots: Int64Array) -> None:
        """Put a batch's results where they belong."""


class Workers:
    """Threads that call one engine. Their number does not change any result.

    One small batch, whose time is of the order of handing it over, an `Immediate` engine computes in the
    thread that asks for it; in one at a time, so that at most one thread beside the workers computes.
    """

    def __init__(self, engine: Engine, num_workers: int | None) -> None:
        self.num_workers = num_workers or engine.max_workers or available_cores()
        self._engine = engine
        self._max_immediate_tokens = engine.max_immediate_tokens if isinstance(engine, Immediate) else 0
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._pool = ThreadPoolExecutor(self.num_workers, "mlmfast", initializer=self._engine.prepare_thread)
        self._caller_computes = Lock()
        self._process = os.getpid()

    def run(self, windows: Iterable[Window], outputs: Outputs) -> Iterator[Window]:
        """The windows in order, each once all its batches are computed. Raises SettingsError if closed."""
        under_way: deque[tuple[Window, list[Future[Computed]] | list[OnDemand]]] = deque()
        source = iter(windows)
        failure: Exception | None = None
        more = True
        try:
            while more or under_way:
                while more and len(under_way) < WINDOWS_AHEAD:
                    try:
                        window = next(source)
                    except StopIteration:
                        more = False
                    except Exception as error:  # raised below, once the windows before it are out
                        more, failure = False, error
                    else:
                        under_way.append((window, self._submit(window, window.batches, outputs)))
                if under_way:
                    window, batches = under_way[0]
                    for batch in batches:
                        window.scatter(*batch.result())
                    under_way.popleft()
                    yield window
            if failure is not None:
                raise failure
        finally:
            for _, batches in under_way:
                for batch in batches:
                    batch.cancel()

    def compute(self, window: RowSource, batches: Sequence[Int64Array], outputs: Outputs) -> None:
        """Some rows of one source, as batches of int64[*] row indices. Raises SettingsError if closed."""
        for batch in self._submit(window, batches, outputs):
            window.scatter(*batch.result())

    def close(self) -> None:
        """Ends the threads."""
        self._closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _submit(
        self, window: RowSource, batches: Sequence[Int64Array], outputs: Outputs
    ) -> list[Future[Computed]] | list[OnDemand]:
        self._require_running()
        if len(batches) == 1 and len(batches[0]) <= self._max_immediate_tokens:
            batch, slots = window.batch(batches[0])
            # Each row has at most the tokens of all texts.
            if batch.num_rows * len(batch.input_ids) <= self._max_immediate_tokens:
                return [OnDemand(partial(self._score_here, batch, slots, outputs))]
            return [self._pool.submit(self._score, batch, slots, outputs)]
        return [self._pool.submit(self._make_and_score, window, indices, outputs) for indices in batches]

    def _require_running(self) -> None:
        if self._closed:
            raise SettingsError("this scorer was closed; load another")
        if self._process != os.getpid():
            self._start()  # a forked child has none of its parent's threads

    def _make_and_score(self, window: RowSource, indices: Int64Array, outputs: Outputs) -> Computed:
        return self._score(*window.batch(indices), outputs)

    def _score(self, batch: RowBatch, slots: Int64Array, outputs: Outputs) -> Computed:
        return self._engine.score(batch, outputs), slots

    def _score_here(self, batch: RowBatch, slots: Int64Array, outputs: Outputs) -> Computed:
        """In the thread that calls, or in a worker if another caller computes."""
        caller_computes = self._caller_computes  # in a forked child others may be started meanwhile
        if not caller_computes.acquire(blocking=False):
            self._require_running()
            return self._pool.submit(self._score, batch, slots, outputs).result()
        try:
            return self._score(batch, slots, outputs)
        finally:
            caller_computes.release()


@dataclass
class OnDemand:
    """Work that is done when its result is asked for, in the place of a Future."""

    result: Callable[[], Computed]

    def cancel(self) -> None:
        """Nothing to do."""
