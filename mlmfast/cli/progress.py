"""A progress bar on stderr, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

COUNTED_FORMATS = ("text", "jsonl")


class ProgressBar:
    """Texts done of all, units per second, time left. doing: what the bar says is done."""

    def __init__(self, total: int | None, unit: str = "tokens", doing: str = "scoring") -> None:
        self._progress = Progress(
            TextColumn(doing),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(doing, total=total, rate="")
        self._unit = unit
        self._num_units = 0

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def skip(self, num_texts: int = 1) -> None:
        self._progress.advance(self._task, num_texts)

    def advance(self, num_units: int, num_texts: int = 1) -> None:
        self._num_units += num_units
        elapsed = self._progress.tasks[0].elapsed or 0.0
        rate = f"{self._num_units / elapsed:,.0f} {self._unit}/s" if elapsed > 0 else ""
        self._progress.update(self._task, advance=num_texts, rate=rate)


class NoProgress:
    """Shows nothing."""

    def skip(self, num_texts: int = 1) -> None:
        pass

    def advance(self, num_units: int, num_texts: int = 1) -> None:
        pass


def progress_bar(
    source: str, input_format: str, *, quiet: bool
) -> AbstractContextManager[ProgressBar | NoProgress]:
    """A bar if stderr is a terminal and not quiet; records are counted first where lines are records."""
    return bar_of(lambda: _count_records(source, input_format), "tokens", quiet=quiet)


def bar_of(
    total: Callable[[], int | None], unit: str, *, quiet: bool, doing: str = "scoring"
) -> AbstractContextManager[ProgressBar | NoProgress]:
    """A bar if stderr is a terminal and not quiet; only then the texts are counted, by `total`."""
    if quiet or not sys.stderr.isatty():
        return nullcontext(NoProgress())
    return ProgressBar(total(), unit, doing)


def _count_records(source: str, input_format: str) -> int | None:
    path = Path(source)
    if source == "-" or not path.is_file() or path.suffix == ".gz" or input_format not in COUNTED_FORMATS:
        return None
    count, last = 0, b"\n"
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")
