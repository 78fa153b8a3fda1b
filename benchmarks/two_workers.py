"""Two workers against one, beside two processes of matrix products against one."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine_field import OURS, contestants
from processes import Process
from report import Report
from rounds import Bound, Contestant, Field, speedup, table

GEMM_SHAPE = (1024, 1536, 384)
"""Rows of a batch, intermediate and hidden size of the embedded model."""
SAME = Bound(per_token=0.0, per_text=0.0)
WANTED = 1.8


def with_two_workers(contestant: Contestant) -> Contestant:
    return replace(
        contestant,
        name=f"{contestant.name}, two workers",
        arguments=[*contestant.arguments, "--workers", "2"],
    )


def worker_tables(report: Report, folder: Path, texts: Sequence[str], rounds: int, gemm_calls: int) -> None:
    """A table for each precision, one worker being 1; the scores of two must be the same bits."""
    for one in contestants(folder, entries=OURS):
        two = with_two_workers(one)
        with Field([one, two]) as field:
            found = field.interleave(texts, rounds, warm_up=len(texts))
        if found[one.name].unavailable:
            report.say(f"- {one.name}: not available: {found[one.name].unavailable}")
            continue
        lines, apart = table(found, {one.name: SAME, two.name: SAME})
        report.say(lines)
        report.disagreeing += apart
        if not apart:
            ratio = speedup(found[two.name], found[one.name])[0]
            dtype = "float32" if "float32" in one.arguments else "bfloat16"
            report.say(verdict(two.name, ratio, dtype, gemm_pair(dtype, gemm_calls, rounds)))


def verdict(name: str, ratio: float, dtype: str, gemm_ratio: float) -> str:
    """The two ratios, and what the goal says: it holds only where the machine gives GEMMs as much."""
    text = (
        f"- {name}: {ratio:.2f}x one; two processes of {dtype} GEMMs {gemm_ratio:.2f}x one; goal {WANTED}x: "
    )
    if ratio >= WANTED:
        return f"{text}met"
    return f"{text}{'missed' if gemm_ratio >= WANTED else 'not to be judged on this machine'}"


def gemm_pair(dtype: str, calls: int, rounds: int) -> float:
    """How much more two processes of GEMMs get done at the same time than one: 2 where the cores are free.

    The median over rounds of 2 t_1 / t_2: seconds of one alone, and of both until the later is done.
    """
    pair = [Process(f"GEMM {i}", Path(sys.executable), "gemm.py", []) for i in range(2)]
    request = {"dtype": dtype, "shape": GEMM_SHAPE, "calls": calls}

    def seconds(processes: Sequence[Process]) -> float:
        start = time.perf_counter()
        for process in processes:
            process.send(request)
        for process in processes:
            process.reply()
        return time.perf_counter() - start

    try:
        seconds(pair)
        return statistics.median(2 * seconds(pair[:1]) / seconds(pair) for _ in range(rounds))
    finally:
        for process in pair:
            process.close()
