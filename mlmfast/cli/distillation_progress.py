"""A distillation on stderr: the teacher's texts, then as any training run."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from mlmfast.cli.stopping import say
from mlmfast.cli.training_progress import TrainingProgress
from mlmfast.types import JsonRecord


class DistillationProgress(TrainingProgress):
    """A listener of `distill`, and a context manager."""

    def __init__(self, num_steps: int, *, quiet: bool) -> None:
        super().__init__(num_steps, quiet=quiet, said=agreement_said)
        self._scoring = self._bar.add_task("scoring", total=None, loss="", visible=False)
        self._bar.update(self._task, visible=False)
        self.num_scored = self._num_tokens = 0
        self._begun = 0.0

    def __enter__(self) -> DistillationProgress:
        super().__enter__()
        return self

    def scoring(self, name: str, num_texts: int) -> None:
        self._num_tokens, self._begun = 0, time.monotonic()
        what = name.replace("_", "-")
        say(f"the teacher scores {num_texts:,} {what} texts", self._quiet)
        self._bar.reset(self._scoring, total=num_texts, description=f"scoring {what}", visible=True)

    def scored(self, num_tokens: int, num_texts: int) -> None:
        self.num_scored += num_texts
        self._num_tokens += num_tokens
        elapsed = time.monotonic() - self._begun
        rate = f"{self._num_tokens / elapsed:,.0f} tokens/s" if elapsed > 0 else ""
        self._bar.update(self._scoring, advance=num_texts, loss=rate)

    def started(self, step: int) -> None:
        self._bar.update(self._scoring, visible=False)
        super().started(step)
        self._bar.update(self._task, visible=True)


def agreement_said(found: JsonRecord) -> str:
    return (
        f"Spearman {number(found['spearman'])}, per token {number(found['spearman_per_token'])}, "
        f"Pearson {number(found['pearson'])} (of {found['num_texts']:,} texts)"
    )


def report_lines(summary: JsonRecord) -> Iterator[str]:
    """What a finished student was found to be."""
    for name, found in (summary["held_out"] or {}).items():
        yield f"held-out, {name}: {agreement_said(found)}"
    if (lists := summary["lists"]) is not None:
        yield f"lists: Kendall {number(lists['kendall'])} within {lists['lists']:,} lists"
        if (wer := lists["wer"]) is not None:
            yield (
                f"lists: WER {wer['first_pass']:.2f} first pass, {wer['teacher']:.2f} teacher, "
                f"{wer['student']:.2f} student; of the gain kept: {number(wer['gain_kept'])}"
            )
    if (pairs := summary["pairs"]) is not None:
        yield (
            f"pairs: accuracy {number(pairs['teacher_accuracy'])} teacher, "
            f"{number(pairs['student_accuracy'])} student; of the teacher's decisions kept: "
            f"{number(pairs['decisions_kept'])} (of {pairs['pairs_scored']:,} pairs)"
        )
    speed = summary["tokens_per_second"]
    yield f"tokens per second: {speed['teacher']:,.0f} teacher, {speed['student']:,.0f} student"


def number(value: float | None) -> str:
    return "undefined" if value is None or math.isnan(value) else f"{value:.4f}"
