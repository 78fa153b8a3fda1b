"""Loss alone, loss with gradients, and memory of every contestant, for three vocabularies.

Times are medians of device events in milliseconds, each call on data as random as the last; memory is the
peak beyond inputs and gradients, in MB. errors: of the loss, and of each gradient relative to its largest
element, against float64. not_reached: problems for which time was short.
"""

from __future__ import annotations

import itertools
import statistics
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from absent import AbsentError
from cuda_build import LIBRARY
from deadline import seconds_left
from rule_contestants import contestants, exact_result, make_problem
from rule_peers import Loss, Problem, Shape

SHAPES = (Shape(4096, 768, 30_522), Shape(4096, 1024, 128_256), Shape(4096, 1024, 250_002))
"""BERT's vocabulary, Llama 3's, XLM-R's."""
DRY_SHAPES = (Shape(5, 16, 300),)
DTYPES = (torch.bfloat16, torch.float32)
RULES = ("log", "brier", "spherical")
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
REPEATS, DRY_REPEATS = 15, 1
WARM_UPS = 3
SETUP = "problem"
"""Stands in place of the contestants where there is none, for want of memory say."""
PROBLEM_SECONDS = 5
"""A problem is not begun when less is left."""
SLOWEST_MS = 100
"""A call slower than this is timed three times only."""


def run(dry: bool, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    device = "cpu" if dry else "cuda"
    found: dict[str, Any] = {}
    not_reached: list[str] = []
    for shape, dtype, rule in itertools.product(DRY_SHAPES if dry else SHAPES, DTYPES, RULES):
        key = f"{shape} {str(dtype).removeprefix('torch.')} {rule}"
        if seconds_left() < PROBLEM_SECONDS:
            not_reached.append(key)
            continue
        try:
            problem = make_problem(shape, dtype, device)
            exact = exact_result(problem, rule)
            found[key] = {
                name: measured(loss, problem, None if "smoothed" in name else exact, dry)
                for name, loss in contestants(rule)
            }
        except Exception:
            found[key] = {SETUP: {"error": traceback.format_exc()[-1000:]}}
        save({"timings": found})
    wrong = [f"{key}: {name}" for key, rows in found.items() for name in failures(rows, dry)]
    rest = {"not_reached": not_reached}
    return rest | ({"error": f"see {'; '.join(wrong)}"} if wrong else {})


def failures(rows: dict[str, dict[str, Any]], dry: bool) -> list[str]:
    """Which of ours failed, disagree, or are absent though they should run."""
    may_be_absent = {"mlmfast cuda"} if dry or not LIBRARY.exists() else set()
    return [
        name
        for name, row in rows.items()
        if name.startswith(("mlmfast", SETUP))
        and ("error" in row or row.get("agrees") is False or ("absent" in row and name not in may_be_absent))
    ]


def measured(
    loss: Loss, problem: Problem, exact: tuple[torch.Tensor, ...] | None, dry: bool
) -> dict[str, Any]:
    """A contestant's figures, or why there are none."""
    try:
        found: dict[str, Any] = {}
        if exact is not None:
            errors = errors_of(loss, problem, exact)
            found["errors"] = [float(f"{error:.2g}") for error in errors]
            found["agrees"] = max(errors) <= TOLERANCES[problem.input.dtype]
        repeats = DRY_REPEATS if dry else REPEATS
        found["forward_ms"] = median_ms(lambda: forward(loss, problem), repeats, dry)
        found["both_ms"] = median_ms(lambda: both(loss, problem), repeats, dry)
        if not dry:
            found["peak_mb"] = peak_mb(loss, problem)
        return found
    except AbsentError as error:
        return {"absent": str(error)}
    except Exception:
        return {"error": traceback.format_exc()[-1000:]}


def errors_of(loss: Loss, problem: Problem, exact: tuple[torch.Tensor, ...]) -> list[float]:
    problem.clear()
    value = loss(problem)
    value.backward()
    gradients = zip([leaf.grad for leaf in problem.leaves], exact[1:], strict=True)
    relative = [float((got.double() - want).abs().max() / want.abs().max()) for got, want in gradients]
    return [abs(float(value.detach()) - float(exact[0])), *relative]


def forward(loss: Loss, problem: Problem) -> None:
    with torch.no_grad():
        loss(problem)


def both(loss: Loss, problem: Problem) -> None:
    problem.clear()
    loss(problem).backward()


def median_ms(call: Callable[[], None], repeats: int, dry: bool) -> float:
    for _ in range(1 if dry else WARM_UPS):
        call()
    times = [call_ms(call, dry)]
    times += [call_ms(call, dry) for _ in range(2 if times[0] > SLOWEST_MS else repeats - 1)]
    return round(statistics.median(times), 3)


def call_ms(call: Callable[[], None], dry: bool) -> float:
    if dry:
        start = time.perf_counter()
        call()
        return 1000 * (time.perf_counter() - start)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def peak_mb(loss: Loss, problem: Problem) -> float:
    problem.clear()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    both(loss, problem)
    torch.cuda.synchronize()
    gradients = sum(leaf.grad.nbytes for leaf in problem.leaves if leaf.grad is not None)
    return round((torch.cuda.max_memory_allocated() - before - gradients) / 2**20, 1)
