"""How the native engine's time grows with the number of lines, their length and the vocabulary."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from engine_field import OURS, ROOT, contestants
from rounds import Field, Times, difference

PLOT = ROOT / ".venv-plot" / "bin" / "python"
BOUNDS = {entry.name: entry.bound for entry in OURS}


@dataclass
class Curve:
    """Seconds, medians, of each contestant at each x, and what kept contestants from having any."""

    title: str
    x_label: str
    x: list[int] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    disagreeing: set[str] = field(default_factory=set)

    def add(self, x: int, found: Mapping[str, Times]) -> None:
        """The times at one x; the first contestant is the one that the others must agree with."""
        self.x.append(x)
        baseline = next(iter(found.values()))
        for name, times in found.items():
            if times.unavailable:
                self.unavailable[name] = times.unavailable
                continue
            apart = difference(times.log_probs, baseline.log_probs)
            if times is not baseline and not apart.within(BOUNDS[name]):
                self.disagreeing.add(name)
            self.seconds.setdefault(name, []).append(statistics.median(times.seconds))

    def names(self) -> list[str]:
        """Of the contestants that have a time to show at every x."""
        return [name for name in self.seconds if name not in self.disagreeing | self.unavailable.keys()]

    def exponent(self, name: str) -> float:
        """b of the power law seconds ~ x^b that fits best: 1 is linear."""
        return float(np.polyfit(np.log(self.x), np.log(self.seconds[name]), 1)[0])

    def table(self) -> str:
        names = self.names()
        lines = [f"| {self.x_label} | {' | '.join(names)} |", f"|---:|{'---:|' * len(names)}"]
        for index, x in enumerate(self.x):
            lines.append(f"| {x:,} | {' | '.join(f'{self.seconds[name][index]:.3f}' for name in names)} |")
        exponents = " | ".join(f"{self.exponent(name):.2f}" for name in names)
        lines.append(f"| exponent of the best power law | {exponents} |")
        lines += [f"\n- {name}: not available: {reason}" for name, reason in self.unavailable.items()]
        lines += [
            f"\n- {name}: disagrees with {next(iter(self.seconds))}" for name in sorted(self.disagreeing)
        ]
        return "\n".join(lines)


def over_texts(curve: Curve, folder: Path, texts_of: Mapping[int, Sequence[str]], rounds: int) -> Curve:
    """The curve's points for several sets of texts and one model."""
    with Field(contestants(folder, entries=OURS)) as ours:
        for x, texts in texts_of.items():
            curve.add(x, ours.interleave(texts, rounds, warm_up=len(texts)))
    return curve


def over_models(curve: Curve, folders: Mapping[int, Path], texts: Sequence[str], rounds: int) -> Curve:
    """The curve's points for several models and one set of texts."""
    for x, folder in folders.items():
        with Field(contestants(folder, entries=OURS)) as ours:
            curve.add(x, ours.interleave(texts, rounds, warm_up=len(texts)))
    return curve


def plot(curves: Sequence[Curve], path: Path) -> str:
    """Draws the curves; the line that says where, or why not."""
    if not PLOT.exists():
        return f"- not plotted: {PLOT.parts[-3]} is missing, see benchmarks/peers.sh"
    drawn = [
        {
            "title": curve.title,
            "x_label": curve.x_label,
            "x": curve.x,
            "seconds": {name: curve.seconds[name] for name in curve.names()},
        }
        for curve in curves
    ]
    script = Path(__file__).with_name("plot_growth.py")
    subprocess.run([PLOT, script, path], input=json.dumps(drawn), text=True, check=True)
    return f"![time against lines, length and vocabulary]({path.name})"
