"""Contestants in processes of their own, timed in turn, compared, and put in a table."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

CONTESTANT = Path(__file__).with_name("contestant.py")
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
}
COLUMNS = (
    "contestant",
    "tokens/s",
    "scored tokens/s",
    "seconds, median (min-max)",
    "ratio",
    "CPU ratio",
    "max difference per token",
    "per text",
    "peak MB (after loading)",
)
QUIET = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "1"}


@dataclass(frozen=True)
class Bound:
    """The largest difference from the baseline with which a contestant still counts as agreeing.

    per_token: of one log-probability; per_text: of a text's sum. Nats; None: not held to one.
    """

    per_token: float | None = None
    per_text: float | None = None


EXACT = Bound(per_text=1e-3)
"""For float32: rounding only."""
ROUNDED = Bound(per_token=0.1)
"""For bfloat16."""


@dataclass(frozen=True)
class Contestant:
    """How to start one: the interpreter, and the arguments of contestant.py."""

    name: str
    python: Path
    arguments: Sequence[str]
    bound: Bound


@dataclass
class Times:
    """A contestant's rounds. log_probs: per text, per token, of the last round; peak memory in MB."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    log_probs: list[list[float]] = field(default_factory=list)
    loaded_mb: float = 0.0
    peak_mb: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """Largest absolute differences of log-probabilities, in nats."""

    per_token: float
    per_text: float

    def within(self, bound: Bound) -> bool:
        return not (
            (bound.per_token is not None and not self.per_token <= bound.per_token)
            or (bound.per_text is not None and not self.per_text <= bound.per_text)
        )


class Process:
    """A running contestant.py."""

    def __init__(self, contestant: Contestant) -> None:
        self.name = contestant.name
        self._process = subprocess.Popen(
            [str(contestant.python), str(CONTESTANT), *contestant.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ONE_THREAD, **QUIET},
        )
        self._requests = cast(IO[str], self._process.stdin)
        self._replies = cast(IO[str], self._process.stdout)
        self.hello = self._reply()

    def score(self, texts: Sequence[str]) -> dict[str, Any]:
        print(json.dumps({"texts": list(texts)}), file=self._requests, flush=True)
        return self._reply()

    def close(self) -> None:
        self._requests.close()
        self._process.wait()

    def _reply(self) -> dict[str, Any]:
        line = self._replies.readline()
        if not line:
            raise SystemExit(f"contestant {self.name!r} ended with status {self._process.wait()}")
        reply: dict[str, Any] = json.loads(line)
        return reply


def interleave(
    contestants: Sequence[Contestant], texts: Sequence[str], rounds: int, *, warm_up: int
) -> dict[str, Times]:
    """`rounds` rounds, in each of which every contestant scores all texts, one after the other.

    warm_up: how many texts each scores before the first round.
    """
    processes = [Process(contestant) for contestant in contestants]
    found = {p.name: Times(loaded_mb=p.hello["loaded_mb"], versions=p.hello["versions"]) for p in processes}
    try:
        for process in processes:
            process.score(texts[:warm_up])
        for _ in range(rounds):
            for process in processes:
                reply = process.score(texts)
                times = found[process.name]
                times.seconds.append(reply["seconds"])
                times.cpu_seconds.append(reply["cpu_seconds"])
                times.log_probs, times.peak_mb = reply["log_probs"], reply["peak_mb"]
    finally:
        for process in processes:
            process.close()
    return found


def difference(scores: Sequence[Sequence[float]], baseline: Sequence[Sequence[float]]) -> Difference:
    """Raises SystemExit if the two did not score the same number of tokens in each text."""
    if [len(text) for text in scores] != [len(text) for text in baseline]:
        raise SystemExit("two contestants scored different numbers of tokens; nothing to compare")
    errors = [np.array(a) - np.array(b) for a, b in zip(scores, baseline, strict=True)]
    return Difference(
        per_token=float(np.abs(np.concatenate(errors)).max()),
        per_text=float(np.abs([error.sum() for error in errors]).max()),
    )


def work(log_probs: Sequence[Sequence[float]], num_special: int = 2) -> tuple[int, int]:
    """Scored tokens, and tokens of all their masked copies (each copy is its whole text)."""
    lengths = [len(text) for text in log_probs]
    return sum(lengths), sum(n * (n + num_special) for n in lengths)


def table(found: Mapping[str, Times], bounds: Mapping[str, Bound]) -> tuple[str, list[str]]:
    """The markdown table, and the names of contestants that disagree with the first: they get no ratio."""
    baseline_name, baseline = next(iter(found.items()))
    num_scored, num_copied = work(baseline.log_probs)
    base_seconds = statistics.median(baseline.seconds)
    base_cpu = statistics.median(baseline.cpu_seconds)
    lines = [f"| {' | '.join(COLUMNS)} |", f"|---|{'---:|' * (len(COLUMNS) - 1)}"]
    disagreeing = []
    for name, times in found.items():
        seconds = statistics.median(times.seconds)
        apart = difference(times.log_probs, baseline.log_probs)
        if apart.within(bounds[name]):
            ratios = f"{base_seconds / seconds:.2f} | {base_cpu / statistics.median(times.cpu_seconds):.2f}"
        else:
            ratios = "disagrees | disagrees"
            disagreeing.append(name)
        apart_text = "- | -" if name == baseline_name else f"{apart.per_token:.1e} | {apart.per_text:.1e}"
        lines.append(
            f"| {name} | {num_copied / seconds:,.0f} | {num_scored / seconds:,.0f} "
            f"| {seconds:.2f} ({min(times.seconds):.2f}-{max(times.seconds):.2f}) | {ratios} | {apart_text} "
            f"| {times.peak_mb:,.0f} ({times.loaded_mb:,.0f}) |"
        )
    return "\n".join(lines), disagreeing
