"""The packed engine in a process for each GPU, beside the same engine in this process alone.

Two processes share the GPU where there is one. Both ways take the same batches, of a model of random weights
in bfloat16, and so results must be equal to the last bit, text by text in their order. tokens_per_second
counts the tokens of all masked copies, from texts to results, by the median of rounds. A dry run takes the
plain twins of the kernels.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from timing_cells import BASE, DRY_BASE, DRY_LENGTHS, Cell, Model, make_cell

from mlmfast.engines import Engine
from mlmfast.engines.base import ModelFiles
from mlmfast.engines.packed.devices import DeviceProcesses
from mlmfast.engines.packed.engine import PackedEngine
from mlmfast.loading import open_model
from mlmfast.results import TextScore
from mlmfast.scorer import Scorer

PRECISION = "bfloat16"


@dataclass(frozen=True)
class Task:
    model: Model
    length: int
    row_tokens: int
    rounds: int
    max_batch_tokens: int | None = None
    """None: what the engines have room for."""


TASK = Task(BASE, length=32, row_tokens=2_000_000, rounds=3)
DRY_TASK = Task(DRY_BASE, DRY_LENGTHS[0], row_tokens=300, rounds=1, max_batch_tokens=60)


def run(dry: bool, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    task = DRY_TASK if dry else TASK
    devices = ("cpu", "cpu") if dry else visible_gpus()
    if dry:
        os.environ.pop("TRITON_INTERPRET", None)  # The interpreter bears one thread alone.
    with tempfile.TemporaryDirectory() as scratch:
        folder = task.model.save(Path(scratch), devices[0])
        cell = make_cell(folder, task.length, task.row_tokens)
        return {"model": task.model.name} | compared(open_model(folder), cell, devices, task)


def visible_gpus() -> tuple[str, ...]:
    """One alone is taken twice."""
    names = tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
    return names * 2 if len(names) == 1 else names


def compared(files: ModelFiles, cell: Cell, devices: Sequence[str], task: Task) -> dict[str, Any]:
    """Both rates; an error where results differ."""
    several = DeviceProcesses(files, PRECISION, devices)
    try:
        one = PackedEngine(files, precision=PRECISION, device=devices[0])
        workers = several.max_workers  # On which batches depend, as on their size.
        max_batch_tokens = task.max_batch_tokens or min(several.max_batch_tokens, one.max_batch_tokens)

        def scored(engine: Engine) -> tuple[list[TextScore], int]:
            with Scorer(files, engine, workers=workers, max_batch_tokens=max_batch_tokens) as scorer:
                return results_and_rate(scorer, cell, task.rounds)

        alone, rate_alone = scored(one)
        together, rate_together = scored(several)
    finally:
        several.close()
    found = {
        "devices": list(devices),
        "texts": len(cell.texts),
        "max_batch_tokens": max_batch_tokens,
        "one_process": {"tokens_per_second": rate_alone},
        "processes": {"tokens_per_second": rate_together},
        "times_as_fast": float(f"{rate_together / rate_alone:.3g}"),
    }
    different = [index for index, pair in enumerate(zip(together, alone, strict=True)) if pair[0] != pair[1]]
    if different:
        found["error"] = f"{len(different)} texts have other results, the first is {different[0]}"
    return found


def results_and_rate(scorer: Scorer, cell: Cell, rounds: int) -> tuple[list[TextScore], int]:
    """Results of a round before those that are timed, which compiles what there is to compile."""
    results, seconds = scorer.score(cell.texts), []
    for _ in range(rounds):
        start = time.perf_counter()
        scorer.score(cell.texts)
        seconds.append(time.perf_counter() - start)
    return results, round(cell.row_tokens / statistics.median(seconds))
