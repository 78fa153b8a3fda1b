"""When kernels ran on the device, from a trace of torch's profiler."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from torch.profiler import ProfilerActivity, profile

DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
DRY_CATEGORIES = ("cpu_op",)
"""Operators stand in for kernels where there is no device."""
NEAR_LONGEST = 0.8


class Span(NamedTuple):
    name: str
    start: float
    """In microseconds, as the end."""
    end: float


def spans_of(call: Callable[[], object], dry: bool) -> list[Span]:
    """What ran on the device during a call, which must wait for it."""
    activity = ProfilerActivity.CPU if dry else ProfilerActivity.CUDA
    with profile(activities=[activity]) as found:  # of the device alone: recording the host slows launches
        call()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        found.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    categories = DRY_CATEGORIES if dry else DEVICE_CATEGORIES
    return sorted(
        (
            Span(event["name"], event["ts"], event["ts"] + event["dur"])
            for event in events
            if event.get("cat") in categories
        ),
        key=lambda span: span.start,
    )


def busy_and_idle(spans: Sequence[Span]) -> tuple[float, float]:
    """Microseconds in which something ran, and in which nothing did between the first and the last; spans by
    their start."""
    busy, reached = 0.0, spans[0].start
    for span in spans:
        busy += max(0.0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
    return busy, reached - spans[0].start - busy


def durations(spans: Sequence[Span]) -> dict[str, list[float]]:
    """Microseconds of each launch by kernel, the kernel that takes most first."""
    by_name: defaultdict[str, list[float]] = defaultdict(list)
    for span in spans:
        by_name[span.name].append(span.end - span.start)
    return dict(sorted(by_name.items(), key=lambda item: -sum(item[1])))


def longest(microseconds: Sequence[float]) -> float:
    """The median of the launches near the longest: a kernel is launched for all tokens and for few."""
    most = max(microseconds)
    return statistics.median(value for value in microseconds if value >= NEAR_LONGEST * most)
