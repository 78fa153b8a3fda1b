"""The ratios that the native engine is to reach, worked out of one table's times."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np
from engine_field import FLOAT32, GROUPS, LOOP, OPENVINO_BF16, OURS_BF16, OURS_EXACT, OURS_INT8, TORCH_BF16
from rounds import Times, speedup

WANTED_OF_GEMM = 0.5


@dataclass(frozen=True)
class Goal:
    """`ours` at least `wanted` times as fast as `other`; None: no number is asked for."""

    ours: str
    other: str
    wanted: float | None = None

    def line(self, agreeing: Mapping[str, Times]) -> str:
        """What came of it among the contestants that agree, by median wall time."""
        best, rival = fastest(self.ours, agreeing), fastest(self.other, agreeing)
        if best is None or rival is None:
            without = self.ours if best is None else self.other
            return f"- {self.ours} against {self.other}: not compared, no contestant of {without} agrees"
        wall, cpu = speedup(agreeing[best], agreeing[rival])
        text = f"- {best} against {_called(self.other, rival)}: {wall:.2f}x (CPU time {cpu:.2f}x)"
        if self.wanted is None:
            return text
        return f"{text}; goal {self.wanted:g}x: {'met' if wall >= self.wanted else 'missed'}"


def goals(*, amx: bool, asked: bool, short: bool) -> list[Goal]:
    """asked: whether the text and model are those that the goals are for. short: short sentences."""

    def wanted(factor: float, holds: bool = True) -> float | None:
        return factor if asked and holds else None

    return [
        Goal(OURS_EXACT, FLOAT32, wanted(3.0 if amx else 1.3)),
        Goal(OURS_EXACT, LOOP, wanted(6.0, amx)),
        Goal(OURS_BF16, TORCH_BF16, wanted(4.0, amx and short)),
        Goal(OURS_BF16, OPENVINO_BF16, wanted(2.0, amx)),
        Goal(OURS_INT8, OURS_BF16, wanted(1.3, amx)),
    ]


def _called(group: str, name: str) -> str:
    return name if sum(of == group for of in GROUPS.values()) == 1 else f"the best of {group} ({name})"


def gemm_line(agreeing: Mapping[str, Times], flops: int, gemm_gflops: float, *, asked: bool) -> str:
    """The rate of our bfloat16, end to end, beside that of the best bfloat16 GEMM."""
    name = fastest(OURS_BF16, agreeing)
    if name is None:
        return f"- {OURS_BF16} against the GEMM: not compared, no contestant of {OURS_BF16} agrees"
    rate = 1e-9 * flops / statistics.median(agreeing[name].seconds)
    share = rate / gemm_gflops
    text = (
        f"- {name} end to end: {rate:,.0f} useful GFLOP/s, "
        f"{share:.0%} of the best bfloat16 GEMM's {gemm_gflops:,.0f}"
    )
    if not asked:
        return text
    return f"{text}; goal {WANTED_OF_GEMM:.0%}: {'met' if share >= WANTED_OF_GEMM else 'missed'}"


def rank_line(found: Mapping[str, Times]) -> str:
    """How well int8 orders texts and tokens as the baseline does."""
    baseline = next(iter(found.values()))
    for name, times in found.items():
        if GROUPS[name] == OURS_INT8 and not times.unavailable:
            both = (times.log_probs, baseline.log_probs)
            texts = rank_correlation(*([sum(text) for text in scores] for scores in both))
            tokens = rank_correlation(*(list(chain.from_iterable(scores)) for scores in both))
            return (
                f"- {name}: Spearman's rank correlation to the loop {texts:.4f} (texts), "
                f"{tokens:.4f} (tokens)"
            )
    return f"- rank correlation of {OURS_INT8}: not available"


def rank_correlation(a: list[float], b: list[float]) -> float:
    """Spearman's, of values that are all different; NaN of fewer than two."""
    if len(a) < 2:
        return float("nan")
    ranks = [np.argsort(np.argsort(values)) for values in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def fastest(group: str, agreeing: Mapping[str, Times]) -> str | None:
    """The contestant of a group with the smallest median."""
    names = [name for name in agreeing if GROUPS[name] == group]
    return min(names, key=lambda name: statistics.median(agreeing[name].seconds), default=None)
