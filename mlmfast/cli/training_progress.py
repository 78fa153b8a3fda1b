"""A training run on stderr: a bar with the loss and the time left, a line for each evaluation."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mlmfast.cli.stopping import say
from mlmfast.types import JsonRecord

RECENT = 20
"""Steps over which the loss shown is averaged."""


class TrainingProgress:
    """A listener of the trainer, and a context manager; the bar only if stderr is a terminal."""

    def __init__(
        self, num_steps: int, *, quiet: bool, said: Callable[[JsonRecord], str] | None = None
    ) -> None:
        """said: an evaluation's record as words."""
        self._quiet = quiet
        self._said = evaluation_said if said is None else said
        self._num_steps = num_steps
        self._losses: deque[float] = deque(maxlen=RECENT)
        self.num_done = self.num_saved = 0
        self.has_run = False
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[loss]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=quiet or not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("training", total=num_steps, loss="")

    def __enter__(self) -> TrainingProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def started(self, step: int) -> None:
        self.has_run = True
        self.num_done = self.num_saved = step
        # Steps of an earlier run took none of this run's time.
        self._bar.reset(self._task, total=self._num_steps - step)
        if step:
            say(f"continuing after step {step:,}", self._quiet)

    def stepped(self, record: JsonRecord) -> None:
        self.num_done = record["step"]
        if record["loss"] is not None:
            self._losses.append(record["loss"])
        rule = f"{record['rule']} " if "rule" in record else ""
        mean = f"{rule}loss {sum(self._losses) / len(self._losses):.4f}" if self._losses else ""
        self._bar.update(self._task, advance=1, loss=mean)

    def evaluated(self, record: JsonRecord) -> None:
        say(f"step {record['step']:,}: held-out {self._said(record['held_out'])}", self._quiet)

    def saved(self, step: int) -> None:
        self.num_saved = step


def evaluation_said(found: JsonRecord) -> str:
    return (
        f"log-loss {found['log_loss']:.4f}, PPPL {found['masked_pppl']:.2f} (of {found['num_targets']:,} "
        f"tokens masked together), Brier {found['brier']:.4f}, calibration error "
        f"{found['calibration_error']:.4f}, accuracy {found['accuracy']:.1%}"
    )
