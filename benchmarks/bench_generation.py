"""Steps per second of Gibbs sampling: `python benchmarks/bench_generation.py [--chains N] [--length L] ...`.

Chains of one length start from random tokens; in a step each draws a token at a random place. The baseline is
the sampler as it is mostly written with Hugging Face: a float32 forward of all chains a step, logits at every
place. All use the same random numbers and one thread, and take turns.

Before that every contestant's own chains are gone through again, step by step: for the same states its
conditionals must be those of a float64 forward within the bound of its precision, for every token of the
vocabulary, however improbable, and the tokens drawn must be those that its conditionals and the random
numbers give. Who fails gets no ratio, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from generation_contestants import Sampler, Streams, by_mlmfast, huggingface
from machine import banner, load_average
from numpy.typing import NDArray
from report import Report
from rounds import EXACT, NATIVE, Bound

import mlmfast
from mlmfast.generation import StartSettings, StartState, allowed_tokens, starts
from mlmfast.models import resolve
from mlmfast.types import BoolArray, Int32Array

SEED = 0
BASELINE, GATHERED = "Hugging Face, float32, all logits", "torch, float32, head at the sampled places"
WANTED_RATIO = 4.0
COLUMNS = (
    "contestant",
    "chain steps/s",
    "seconds a step, median (min-max)",
    "ratio",
    "off by, tokens drawn",
    "any token",
    "total variation",
    "same chains",
)


@dataclass
class Agreement:
    """Of one contestant's conditionals with those in float64, the worst of all steps and chains.

    drawn: difference of the log-probability of a token that was drawn; anywhere: of any token, however
    improbable; variation: half the sum of all differences of probabilities. num_wrong: tokens that its
    conditionals do not give.
    """

    drawn: float = 0.0
    anywhere: float = 0.0
    variation: float = 0.0
    num_wrong: int = 0

    def within(self, bound: Bound) -> bool:
        """False too where a difference is NaN."""
        return self.anywhere <= bound.per_token and self.num_wrong == 0

    def add(self, own: NDArray[np.float64], others: NDArray[np.float64], drawn: NDArray[np.int64]) -> None:
        """The conditionals of a step, float64[chains, m] log-probabilities, and int64[chains] of the m."""
        apart = np.abs(own - others)
        variation = np.abs(np.exp(own) - np.exp(others)).sum(axis=1) / 2
        # NaN stays.
        self.drawn = float(np.maximum(self.drawn, apart[np.arange(len(drawn)), drawn].max()))
        self.anywhere = float(np.maximum(self.anywhere, apart.max()))
        self.variation = float(np.maximum(self.variation, variation.max()))


@dataclass
class Found:
    """seconds: of the rounds. num_same: chains that are the baseline's to the last step."""

    agreement: Agreement
    num_same: int
    seconds: list[float] = field(default_factory=list)


def go_through(
    sampler: Sampler,
    reference: Sampler,
    states: Int32Array,
    streams: Streams,
    allowed: BoolArray,
) -> Agreement:
    """Of chains in the states int32[steps + 1, chains, n]."""
    found = Agreement()
    chains, tokens = np.arange(states.shape[1]), np.flatnonzero(allowed)
    for before, after in pairwise(states):
        places, uniforms = streams.step()
        own, others = (s.conditionals(before, places)[:, allowed] for s in (sampler, reference))
        cumulative = np.exp(own).cumsum(axis=1)  # [chains, allowed]
        drawn = (cumulative <= uniforms[:, None] * cumulative[:, -1:]).sum(axis=1)
        found.add(own, others, drawn)
        expected = before.copy()
        expected[chains, places] = tokens[drawn]
        found.num_wrong += int((expected != after).any(axis=1).sum())
    return found


def measure(
    samplers: Mapping[str, Sampler],
    reference: Sampler,
    begun: Sequence[StartState],
    allowed: BoolArray,
    num_steps: int,
    num_rounds: int,
) -> dict[str, Found]:
    """The first is the baseline; reference: in float64."""
    found = {}
    baseline = next(iter(samplers.values()))
    states_of_baseline = baseline.run(begun, num_steps)
    for name, sampler in samplers.items():
        states = sampler.run(begun, num_steps)
        agreement = go_through(sampler, reference, states, Streams(begun, SEED), allowed)
        found[name] = Found(agreement, int((states[-1] == states_of_baseline[-1]).all(axis=1).sum()))
    for _ in range(num_rounds):
        for name, sampler in samplers.items():
            sampler.run(begun, 1)  # it finds the caches full of another's weights
            started = time.perf_counter()
            sampler.run(begun, num_steps)
            found[name].seconds.append(time.perf_counter() - started)
    return found


def table(
    found: Mapping[str, Found], bounds: Mapping[str, Bound], num_chains: int, num_steps: int
) -> tuple[str, dict[str, float]]:
    """Markdown, and the ratios of those that agree."""
    baseline = statistics.median(next(iter(found.values())).seconds)
    lines = [f"| {' | '.join(COLUMNS)} |", f"|---|{'---:|' * (len(COLUMNS) - 1)}"]
    ratios: dict[str, float] = {}
    for name, own in found.items():
        median = statistics.median(own.seconds)
        apart = own.agreement
        if apart.within(bounds[name]):
            ratios[name] = baseline / median
        per_step = [seconds / num_steps for seconds in (median, min(own.seconds), max(own.seconds))]
        lines.append(
            f"| {name} | {num_chains / per_step[0]:,.0f} | {per_step[0]:.3f} ({per_step[1]:.3f}-"
            f"{per_step[2]:.3f}) | {f'{ratios[name]:.2f}' if name in ratios else 'disagrees'} | "
            f"{apart.drawn:.1e} | {apart.anywhere:.1e} | {apart.variation:.1e} | "
            f"{own.num_same} of {num_chains} |"
        )
    return "\n".join(lines), ratios


def goal(ratios: Mapping[str, float]) -> str:
    """The fastest of ours that is exact against the baseline."""
    exact = [name for name in ratios if name.startswith("mlmfast") and not name.endswith("bfloat16")]
    if not exact or BASELINE not in ratios:
        return "- goal: not judged, as nobody to compare agrees"
    name = max(exact, key=lambda name: ratios[name])
    verdict = "met" if ratios[name] >= WANTED_RATIO else "missed"
    return f"- {name} against {BASELINE}: {ratios[name]:.2f}x; goal {WANTED_RATIO:g}x: {verdict}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="folder or hub id; by default the embedded model")
    parser.add_argument("--chains", type=int, default=64)
    parser.add_argument("--length", type=int, default=40, help="tokens of a chain, special ones not counted")
    parser.add_argument("--steps", type=int, default=10, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precisions", nargs="+", choices=NATIVE, default=["float32", "bf16x3", "bf16x4"])
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()

    torch.set_num_threads(1)
    report = Report(options.output)
    report.say(f"`python benchmarks/bench_generation.py {shlex.join(sys.argv[1:])}`\n\n{banner()}")
    folder = resolve(options.model).folder
    with ExitStack() as stack:
        scorers = {
            precision: stack.enter_context(
                mlmfast.load(options.model, engine="native", precision=precision, workers=1)
            )
            for precision in options.precisions
        }
        files = next(iter(scorers.values())).files
        allowed = allowed_tokens(files.tokenizer, files.config.vocab_size)
        settings = StartSettings(length=options.length, init="random")
        begun = list(starts(next(iter(scorers.values())), [""] * options.chains, settings, seed=SEED))
        mask_id = files.tokenizer.special.mask_id
        assert mask_id is not None  # a masked model has one
        samplers = {
            name: huggingface(folder, mask_id, allowed, SEED, gathered=gathered)
            for name, gathered in ((BASELINE, False), (GATHERED, True))
        }
        reference = huggingface(folder, mask_id, allowed, SEED, gathered=True, dtype=torch.float64)
        bounds = dict.fromkeys(samplers, EXACT)
        for precision, scorer in scorers.items():
            name = f"mlmfast native, {precision}"
            samplers[name], bounds[name] = by_mlmfast(scorer, SEED), NATIVE[precision]
        found = measure(samplers, reference, begun, allowed, options.steps, options.rounds)
    lines, ratios = table(found, bounds, options.chains, options.steps)
    report.say(f"### Gibbs sampling, {options.chains} chains of {options.length} tokens\n\n{lines}")
    report.say(goal(ratios))
    report.say(
        f"- {options.rounds} interleaved rounds of {options.steps} steps of all chains; load average at the "
        f"end: {load_average()}"
    )
    report.disagreeing = [
        f"{name} ({own.agreement.num_wrong} tokens that its conditionals do not give)"
        for name, own in found.items()
        if name not in ratios
    ]
    if report.disagreeing:
        raise SystemExit(f"conditionals disagree: {', '.join(report.disagreeing)}")


if __name__ == "__main__":
    main()
