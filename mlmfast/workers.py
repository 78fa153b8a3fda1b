"""Windows through an engine: one worker per core, each taking whole batches, results in input order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from mlmfast.engines import Engine, Outputs
from mlmfast.errors import SettingsError
from mlmfast.types import Int64Array, RowBatch, TargetOutputs
from mlmfast.windows import Window

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
    """Threads that call one engine. Their number does not change any result."""

    def __init__(self, engine: Engine, num_workers: int | None) -> None:
        self.num_workers = num_workers or engine.max_workers or available_cores()
        self._engine = engine
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._pool = ThreadPoolExecutor(self.num_workers, "mlmfast", initializer=self._engine.prepare_thread)
        self._process = os.getpid()

    def run(self, windows: Iterable[Window], outputs: Outputs) -> Iterator[Window]:
        """The windows in order, each once all its batches are computed. Raises SettingsError if closed."""
        under_way: deque[tuple[Window, list[Future[tuple[TargetOutputs, Int64Array]]]]] = deque()
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
    ) -> list[Future[tuple[TargetOutputs, Int64Array]]]:
        if self._closed:
            raise SettingsError("this scorer was closed; load another")
        if self._process != os.getpid():
            self._start()  # a forked child has none of its parent's threads
        return [self._pool.submit(self._score, window, indices, outputs) for indices in batches]

    def _score(
        self, window: RowSource, indices: Int64Array, outputs: Outputs
    ) -> tuple[TargetOutputs, Int64Array]:
        batch, slots = window.batch(indices)
        return self._engine.score(batch, outputs), slots
