"""Contestants in processes of their own, timed in turn, compared, and put in a table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from processes import Process

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


@dataclass(frozen=True)
class Bound:
    """The differences from the baseline with which a contestant still counts as agreeing, in nats.

    per_token: largest of one log-probability; per_text: of a text's sum. at_least: largest difference per
    token that there must be; a smaller one betrays a precision finer than the one asked for.
    """

    per_token: float
    per_text: float
    at_least: float = 0.0


EXACT = Bound(per_token=1e-4, per_text=1e-3)
"""For float32: rounding only."""
ROUNDED = Bound(per_token=0.1, per_text=1.0)
"""For bfloat16."""
QUANTISED = Bound(per_token=2.0, per_text=10.0, at_least=1e-3)
"""For int8: wide, as the rank correlation says how good it is."""
NATIVE = {"float32": EXACT, "bf16x3": EXACT, "bf16x4": EXACT, "bfloat16": ROUNDED, "int8": QUANTISED}
"""The native engine's precisions and their bounds."""


@dataclass(frozen=True)
class Contestant:
    """How to start one: the interpreter, and the arguments of contestant.py.

    unavailable: why it cannot run, where that is known beforehand.
    """

    name: str
    python: Path
    arguments: Sequence[str]
    bound: Bound
    unavailable: str | None = None


@dataclass
class Times:
    """A contestant's rounds. log_probs: per text, per token, of the last round; memory in MB.

    unavailable: why there are none.
    """

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    log_probs: list[list[float]] = field(default_factory=list)
    loaded_mb: float = 0.0
    peak_mb: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    unavailable: str | None = None


class Steadiness:
    """Of a machine whose rate others change: a turn is taken again until the machine ran as fast as it can
    before and after, or `attempts` times."""

    def __init__(self, rate: Callable[[], float], share: float = 0.75, attempts: int = 4) -> None:
        """rate: measures it, in any unit, quickly. share: what a turn is to have of the best so far."""
        self._rate = rate
        self._share = share
        self._attempts = attempts
        self._best = rate()
        self._last = self._best
        self.num_turns = self.num_repeated = self.num_unsteady = 0

    def turn(self, take: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The reply of the last attempt."""
        self.num_turns += 1
        for attempt in range(1, self._attempts + 1):
            before = self._last
            reply = take()
            self._last = self._rate()
            self._best = max(self._best, self._last)
            if min(before, self._last) >= self._share * self._best:
                break
            if attempt == self._attempts:
                self.num_unsteady += 1
            else:
                self.num_repeated += 1
        return reply

    def line(self, what: str) -> str:
        return (
            f"- {self.num_turns} turns; {self.num_repeated} more were taken again, because {what} beside "
            f"them was under {self._share:.0%} of the best; {self.num_unsteady} stayed so "
            f"in {self._attempts} attempts"
        )


@dataclass(frozen=True)
class Difference:
    """Largest absolute differences of log-probabilities, in nats."""

    per_token: float
    per_text: float

    def within(self, bound: Bound) -> bool:
        """False too where a difference is NaN."""
        return bound.at_least <= self.per_token <= bound.per_token and self.per_text <= bound.per_text


class Field:
    """Contestants that have loaded the model and wait for texts. A context manager."""

    def __init__(self, contestants: Sequence[Contestant]) -> None:
        self._processes: dict[str, Process] = {}
        self._hellos: dict[str, dict[str, Any]] = {}
        for contestant in contestants:
            reason = contestant.unavailable
            if reason is None and not contestant.python.exists():
                reason = f"{contestant.python.parts[-3]} is missing, see benchmarks/peers.sh"
            self._hellos[contestant.name] = {"unavailable": reason}
            if reason is None:
                arguments = (contestant.name, contestant.python, "contestant.py", contestant.arguments)
                self._processes[contestant.name] = Process(*arguments)
        for name, process in list(self._processes.items()):
            self._hellos[name] = process.reply()
            if "unavailable" in self._hellos[name]:
                self._processes.pop(name).close()

    def interleave(
        self, texts: Sequence[str], rounds: int, *, warm_up: int, steadiness: Steadiness | None = None
    ) -> dict[str, Times]:
        """`rounds` rounds, in each of which every contestant scores all texts, one after the other.

        warm_up: how many texts each scores before the first round. steadiness: says which turns count; all do
        without it.
        """
        found = {name: Times(**hello) for name, hello in self._hellos.items()}
        for process in self._processes.values():
            process.ask({"texts": texts[:warm_up]})
        for _ in range(rounds):
            for name, process in self._processes.items():
                ask = partial(process.ask, {"texts": texts})
                reply, times = ask() if steadiness is None else steadiness.turn(ask), found[name]
                times.seconds.append(reply["seconds"])
                times.cpu_seconds.append(reply["cpu_seconds"])
                times.log_probs, times.peak_mb = reply["log_probs"], reply["peak_mb"]
        return found

    def __enter__(self) -> Field:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.close()


def interleave(
    contestants: Sequence[Contestant], texts: Sequence[str], rounds: int, *, warm_up: int
) -> dict[str, Times]:
    """See Field.interleave."""
    with Field(contestants) as field:
        return field.interleave(texts, rounds, warm_up=warm_up)


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


def table(
    found: Mapping[str, Times],
    bounds: Mapping[str, Bound],
    *,
    rates: Mapping[str, Callable[[float], str]] | None = None,
) -> tuple[str, list[str]]:
    """The markdown table, and the names of contestants that disagree with the first: they get no ratio.

    rates: more columns, each the text for a median in seconds. Raises SystemExit if the first did not run.
    """
    baseline_name, baseline = next(iter(found.items()))
    if baseline.unavailable:
        raise SystemExit(f"the baseline, {baseline_name}, is not available: {baseline.unavailable}")
    rates = rates or {}
    num_scored, num_copied = work(baseline.log_probs)
    columns = [*COLUMNS, *rates]
    lines = [f"| {' | '.join(columns)} |", f"|---|{'---:|' * (len(columns) - 1)}"]
    disagreeing = []
    for name, times in found.items():
        if times.unavailable:
            lines.append(f"| {name} | not available: {times.unavailable} {'|' * (len(columns) - 1)}")
            continue
        apart = difference(times.log_probs, baseline.log_probs)
        seconds = statistics.median(times.seconds)
        if apart.within(bounds[name]):
            ratios = [f"{ratio:.2f}" for ratio in speedup(times, baseline)]
        else:
            ratios = ["disagrees", "disagrees"]
            disagreeing.append(name)
        cells = [
            name,
            f"{num_copied / seconds:,.0f}",
            f"{num_scored / seconds:,.0f}",
            f"{seconds:.2f} ({min(times.seconds):.2f}-{max(times.seconds):.2f})",
            *ratios,
            *(["-", "-"] if name == baseline_name else [f"{apart.per_token:.1e}", f"{apart.per_text:.1e}"]),
            f"{times.peak_mb:,.0f} ({times.loaded_mb:,.0f})",
            *(rate(seconds) for rate in rates.values()),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines), disagreeing


def speedup(times: Times, baseline: Times) -> tuple[float, float]:
    """How many times faster than the baseline: medians of wall time, and of CPU time."""
    return (
        statistics.median(baseline.seconds) / statistics.median(times.seconds),
        statistics.median(baseline.cpu_seconds) / statistics.median(times.cpu_seconds),
    )
