"""The scoring-rule operators against torch, one thread: `python benchmarks/bench_scoring_rules.py`.

Loss and gradients by input, weight and bias of N rows, D features, V classes; log-probabilities alone;
and the memory of each loss, in a process of its own. Contestants take turns in one process and medians
are reported. One whose loss or gradients are not those of float64 gets no ratio.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from machine import banner
from report import Report
from rule_memory import memory_table
from rule_peers import EAGER, SCORERS, Problem, Shape, losses, make_problem
from torch import Tensor
from torch.nn import functional as F

from mlmfast.functional import scoring_rule_loss

TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 5e-2}
"""Of the loss, and of each gradient relative to its largest element."""
SCORE_TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 0.1}
"""Of a log-probability."""
OURS = "mlmfast"
EXACT_ROWS = 256
"""Whose logits are in memory at once in float64."""

Result = tuple[Tensor, ...]
"""The loss and the gradients by input, weight and bias."""


def result_of(loss: Callable[[Problem], Tensor], problem: Problem) -> Result:
    problem.clear()
    value = loss(problem)
    value.backward()
    return value.detach(), *(leaf.grad for leaf in problem.leaves if leaf.grad is not None)


def exact_result(problem: Problem, rule: str) -> Result:
    exact, total, num_rows = problem.double(), 0.0, len(problem.target)
    for start in range(0, num_rows, EXACT_ROWS):
        rows = slice(start, start + EXACT_ROWS)
        logits = F.linear(exact.input[rows], exact.weight, exact.bias)
        share = scoring_rule_loss(logits, exact.target[rows], rule=rule, reduction="sum") / num_rows
        share.backward()
        total += float(share.detach())
    return torch.tensor(total), *(leaf.grad for leaf in exact.leaves if leaf.grad is not None)


def exact_scores(problem: Problem) -> Tensor:
    exact = problem.double()
    parts = []
    for start in range(0, len(problem.target), EXACT_ROWS):
        rows = slice(start, start + EXACT_ROWS)
        log_probs = F.linear(exact.input[rows], exact.weight, exact.bias).log_softmax(-1)
        parts.append(log_probs.gather(1, exact.target[rows, None]).squeeze(1))
    return torch.cat(parts)


def largest_error(found: Result, exact: Result) -> float:
    gradients = zip(found[1:], exact[1:], strict=True)
    relative = [float((got.double() - want).abs().max() / want.abs().max()) for got, want in gradients]
    return max(abs(float(found[0]) - float(exact[0])), *relative)


def interleave(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def table(seconds: dict[str, list[float]], errors: dict[str, float], tolerance: float) -> str:
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    agreeing = {name for name, error in errors.items() if error <= tolerance}
    lines = [
        "| contestant | seconds, median (min-max) | times as long as mlmfast | error |",
        "|---|---:|---:|---:|",
    ]
    for name, times in seconds.items():
        ratio = f"{medians[name] / medians[OURS]:.2f}" if {name, OURS} <= agreeing else "disagrees"
        span = f"{medians[name]:.3f} ({min(times):.3f}-{max(times):.3f})"
        lines.append(f"| {name} | {span} | {ratio} | {errors[name]:.1e} |")
    peers = agreeing - {OURS}
    if OURS in agreeing and peers:
        best = min(peers, key=lambda name: medians[name])
        lines.append(f"\nThe best of torch, {best}, takes {medians[best] / medians[OURS]:.2f} times as long.")
    return "\n".join(lines)


def bench_losses(
    shape: Shape, dtype: torch.dtype, rule: str, rounds: int, *, compiled: bool, chunked: bool
) -> str:
    problem = make_problem(shape, dtype)
    exact = exact_result(problem, rule)
    runs: dict[str, Callable[[], object]] = {}
    errors = {}
    for name, loss in losses(rule, compiled=compiled, chunked=chunked):
        errors[name] = largest_error(result_of(loss, problem), exact)
        runs[name] = lambda loss=loss: result_of(loss, problem)
    return table(interleave(runs, rounds), errors, TOLERANCES[dtype])


def bench_scores(shape: Shape, dtype: torch.dtype, rounds: int) -> str:
    with torch.no_grad():
        problem = make_problem(shape, dtype)
        exact = exact_scores(problem)
        runs: dict[str, Callable[[], object]] = {}
        errors = {}
        for name, score in SCORERS.items():
            errors[name] = float((score(problem).double() - exact).abs().max())
            runs[name] = lambda score=score: score(problem)
        return table(interleave(runs, rounds), errors, SCORE_TOLERANCES[dtype])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--shape", default="2048,768,30522", help="N,D,V")
    parser.add_argument("--rules", default="log,brier,spherical", help=f"of {', '.join(EAGER)}")
    parser.add_argument("--compiled", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--chunked", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    shape = Shape(*map(int, options.shape.split(",")))
    report = Report(options.output)
    report.say(f"# Scoring rules, {shape}\n\n{banner()}\n- {options.rounds} rounds")
    for dtype in TOLERANCES:
        for rule in options.rules.split(","):
            report.say(f"## {rule}, {dtype}: loss and gradients")
            kinds = {"compiled": options.compiled, "chunked": options.chunked}
            report.say(bench_losses(shape, dtype, rule, options.rounds, **kinds))
        report.say(f"## log-probabilities, {dtype}\n\n{bench_scores(shape, dtype, options.rounds)}")
        report.say(f"## memory, log, {dtype}\n\n{memory_table(shape, dtype)}")


if __name__ == "__main__":
    main()
