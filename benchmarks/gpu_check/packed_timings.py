"""The packed engine's speed beside others', over sizes of models, vocabularies and lengths of texts.

Contestants score the same masked copies in turn, each in a process of its own with time limits; their rates
come from medians. tokens_per_second counts the tokens of all masked copies. Two shares of torch's own rate of
bfloat16 products, measured in between: mfu_useful counts the FLOPs of all copies, each computed alone
(flops.py), the same for everyone, who may have done less or more; mfu_executed those that the packed engine
executes, after what it shares and leaves out (executed_flops.py), and is null for others. peak_mb is null
where torch's allocator is not used. difference is the root mean square of a contestant's differences from the
reference in float32, as a share of the spread of the reference: where it is beyond AGREES there is no ratio.
rank_flips is the share of pairs of the same log-probabilities whose order changes.
times_as_long: as the packed engine, which itself has none where it disagrees. Who is absent, fails or is late
says so in place of figures; models and texts not reached in time are named.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from contestant_workers import ContestantWorkers
from deadline import seconds_left
from device_rates import gemm_flops
from packed_contestants import COMPILED, FIELD, GATHERED, NUM_COMPARED, ONNX, OURS, PADDED, REFERENCE
from score_differences import difference, rank_flips
from timing_cells import (
    CELLS,
    DRY_BASE,
    DRY_LENGTHS,
    LENGTHS,
    TIMED_MODELS,
    Cell,
    Model,
    cell_name,
    make_cell,
)
from vocabularies import asked_for

CELL_SECONDS = 50
"""A cell is not begun when less is left."""
PREPARE_SECONDS, COMPILE_SECONDS = 60, 150
ROUNDS_SECONDS = 4
"""Of one cell: rounds go on up to MOST_ROUNDS, and at least LEAST_ROUNDS, until they have taken as much."""
LEAST_ROUNDS, MOST_ROUNDS = 3, 9
AGREES = 0.1
"""bfloat16 was measured at 0.01 to 0.04 on these models on a CPU, Hugging Face's as the packed engine's."""
AIMS = ((PADDED, 5.0), (GATHERED, 2.5))
"""Times as long as the packed engine."""
MFU_AIM, MFU_MODEL, MFU_LENGTH = 0.5, "BERT-base", 32
"""Of what is executed, for texts of so many tokens and more."""


def run(dry: bool, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    device = "cpu" if dry else "cuda"
    models, lengths = timed_models(dry), DRY_LENGTHS if dry else LENGTHS
    found: dict[str, Any] = {}
    not_reached: list[str] = []
    gemm_rates = []
    with tempfile.TemporaryDirectory() as scratch, ContestantWorkers(device) as workers:
        folders = {model: model.save(Path(scratch), device) for model in models}
        compile_all(workers, folders.values(), lengths[0])
        for model in models:
            folder = folders[model]
            gemm_rates.append(gemm_flops(dry))
            for length in lengths:
                key = cell_name(model, length)
                if seconds_left() < CELL_SECONDS:
                    not_reached.append(key)
                    continue
                cell = make_cell(folder, length, model.size.row_tokens)
                found[key] = measured(workers, folder, cell, gemm_rates[-1], dry)
                save(so_far(found, gemm_rates))
    wrong = [key for key, rows in found.items() if "times_as_long" not in rows[OURS]]
    results = so_far(found, gemm_rates) | {"not_reached": not_reached}
    return results | ({"error": f"no ratio for ours: {'; '.join(wrong)}"} if wrong else {})


def timed_models(dry: bool) -> list[Model]:
    return [DRY_BASE] if dry else [model for model in TIMED_MODELS if model.vocab_size in asked_for()]


def so_far(cells: dict[str, dict[str, dict[str, Any]]], gemm_rates: Sequence[float]) -> dict[str, Any]:
    return {
        "cells": cells,
        "gemm_tflops": [round(rate / 1e12, 3) for rate in gemm_rates],
        "aims": aims(cells),
        "summary": {key: summed_up(rows) for key, rows in cells.items()},
    }


def compile_all(workers: ContestantWorkers, folders: Collection[Path], length: int) -> None:
    """At once, as it takes the host long, and before anything is timed."""
    with ThreadPoolExecutor(len(folders)) as pool:
        compiled = [
            pool.submit(
                workers.prepare, [COMPILED], folder, make_cell(folder, length, 1).texts, COMPILE_SECONDS
            )
            for folder in folders
        ]
    for model in compiled:
        model.result()


def measured(
    workers: ContestantWorkers, folder: Path, cell: Cell, gemm_rate: float, dry: bool
) -> dict[str, dict[str, Any]]:
    """The figures of every contestant on one cell."""
    reference = workers.prepare([REFERENCE], folder, first_texts(cell), PREPARE_SECONDS)[REFERENCE]
    if "error" in reference:
        return {OURS: {}, REFERENCE: reference}
    workers.release([REFERENCE], folder)
    # The dry run of onnx_cuda goes through that contestant, which takes long.
    names = [name for name in FIELD if not (dry and name == ONNX)]
    rows = workers.prepare(names, folder, cell.texts, PREPARE_SECONDS)
    rounds = timed_rounds(workers, folder, rows, dry)
    workers.release([name for name in names if rounds[name] and "error" not in rounds[name][-1]], folder)
    figures = {}
    for name, row in rows.items():
        failed = [found for found in (row, *rounds[name]) if "absent" in found or "error" in found]
        if failed:
            figures[name] = failed[0]
            continue
        seconds = [found["seconds"] for found in rounds[name]]
        compared = row["log_probs"], reference["log_probs"][: len(row["log_probs"])]
        apart = difference(*compared)
        figures[name] = {
            **row["details"],
            **rates(seconds, cell, cell.flops(folder), row["executed_flops"], gemm_rate),
            "peak_mb": rounds[name][-1]["peak_mb"],
            "difference": apart,
            "rank_flips": rank_flips(*compared),
            "agrees": apart <= AGREES and row["num_scores"] == cell.num_scored,
        }
    return with_ratios(figures)


def timed_rounds(
    workers: ContestantWorkers, folder: Path, rows: Mapping[str, dict[str, Any]], dry: bool
) -> dict[str, list[dict[str, Any]]]:
    """By name the rounds of those that are prepared, up to one that failed."""
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in rows}
    going = [name for name, row in rows.items() if "log_probs" in row]
    begun = time.monotonic()
    for number in range(1 if dry else MOST_ROUNDS):
        if number >= LEAST_ROUNDS and time.monotonic() - begun > ROUNDS_SECONDS:
            break
        for name in list(going):
            rounds[name].append(workers.timed(name, folder))
            if "error" in rounds[name][-1]:
                going.remove(name)
    return rounds


def first_texts(cell: Cell) -> list[str]:
    """As few as have the tokens that are compared."""
    counts = np.cumsum([length - 2 for length in cell.lengths])
    return list(cell.texts[: int(np.searchsorted(counts, NUM_COMPARED)) + 1])


def rates(
    seconds: Sequence[float], cell: Cell, useful: int, executed: int | None, gemm_rate: float
) -> dict[str, Any]:
    """useful, executed: FLOPs."""
    median = statistics.median(seconds)
    return {
        "tokens_per_second": round(cell.row_tokens / median),
        "mfu_useful": float(f"{useful / median / gemm_rate:.3g}"),
        "mfu_executed": None if executed is None else float(f"{executed / median / gemm_rate:.3g}"),
        "seconds": [float(f"{value:.4g}") for value in (median, min(seconds), max(seconds))],
    }


def with_ratios(figures: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """times_as_long for those that agree, if ours does."""
    ours = figures[OURS]
    if ours.get("agrees"):
        for row in figures.values():
            if row.get("agrees"):
                row["times_as_long"] = float(f"{row['seconds'][0] / ours['seconds'][0]:.3g}")
    return figures


def summed_up(rows: dict[str, dict[str, Any]]) -> str:
    """Our rate, and the others' times; or what there is instead."""
    ours = rows[OURS]
    shares = f"mfu useful {ours.get('mfu_useful')}, executed {ours.get('mfu_executed')}"
    said = [f"{ours.get('tokens_per_second', 0):,} tokens/s, {shares}"]
    for name, row in rows.items():
        if name != OURS:
            missing = "disagrees" if row.get("agrees") is False else "without a ratio"
            instead = next((key for key in ("absent", "error") if key in row), missing)
            said.append(f"{name} {row.get('times_as_long', instead)}")
    return "; ".join(said)


def aims(cells: dict[str, dict[str, dict[str, Any]]]) -> dict[str, str]:
    """What was aimed at, and what was reached of it in how many of the cells that it is for."""
    said = {}
    for name, aim in AIMS:
        ratios = [cells.get(cell, {}).get(name, {}).get("times_as_long") for cell in CELLS]
        said[f"{name} takes {aim:g} times as long"] = reached(ratios, aim)
    shares = []
    for cell, (size, length) in CELLS.items():
        if size == MFU_MODEL and length >= MFU_LENGTH:
            ours = cells.get(cell, {}).get(OURS, {})
            shares.append(ours["mfu_executed"] if ours.get("agrees") else None)
    said[f"{MFU_MODEL}, {MFU_LENGTH} tokens and more: mfu executed {MFU_AIM:g}"] = reached(shares, MFU_AIM)
    return said


def reached(values: Sequence[float | None], aim: float) -> str:
    """values: of every cell, None where there is none. Met is only what every cell meets."""
    known = [value for value in values if value is not None]
    counted = f"{len(known)} of {len(values)} cells"
    if not known:
        return f"not measured: {counted}"
    met = "met" if len(known) == len(values) else "met as far as measured"
    return f"{met if min(known) >= aim else 'missed'}: {min(known):g} to {max(known):g} in {counted}"
