"""Latency of one text in memory, one thread: `python benchmarks/bench_latency.py [--student FOLDER] ...`.

PLL through Hugging Face (every masked copy by itself, and all in one forward), the native engine and our ONNX
graphs; then a student through torch, the native engine and its ONNX graph. Graphs are folders made by
`mlmfast export`. Every call scores one text, tokenization included; contestants take turns. Before that all
score all texts: who disagrees with the first of its table by more than its bound gets no ratio, and the exit
status is 1. Who cannot run is named with the reason.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from latency_contestants import ScoreText, by_mlmfast, huggingface, onnx_graph
from machine import banner, load_average
from report import Report
from rounds import EXACT, NATIVE, Bound, Difference, difference
from texts import INAUGURAL, read_pieces
from tokenizers import Tokenizer

from mlmfast.errors import MlmfastError
from mlmfast.models import resolve

WARM_UP_CALLS = 3
"""Of each contestant in each round, not counted: it finds the caches full of another's weights."""
PIECES_PER_TEXT = 8
"""Pieces that are read for each text wanted, as most are a token or two short."""
HUGGINGFACE = ("Hugging Face, copy by copy", "Hugging Face, all copies at once")
WANTED_RATIO, WANTED_MS = 3.0, 1.0


@dataclass(frozen=True)
class Entry:
    """A contestant that is still to be loaded; absent: why it cannot be."""

    name: str
    load: Callable[[], ScoreText]
    bound: Bound = EXACT
    absent: str | None = None


@dataclass
class Latencies:
    """seconds: of the calls. log_probs: of all texts, as computed before. unavailable: why there are none."""

    seconds: list[float] = field(default_factory=list)
    log_probs: list[list[float]] = field(default_factory=list)
    unavailable: str | None = None

    def milliseconds(self, quantile: float) -> float:
        return 1000 * float(np.quantile(self.seconds, quantile))


def pll_entries(model: str | None, masked: Path | None, pll: Path | None) -> list[Entry]:
    folder = resolve(model).folder
    copy_by_copy, at_once = HUGGINGFACE
    return [
        Entry(at_once, partial(huggingface, folder, batched=True)),
        Entry(copy_by_copy, partial(huggingface, folder, batched=False)),
        *(
            Entry(f"native, {precision}", partial(by_mlmfast, model, "native", precision), bound)
            for precision, bound in NATIVE.items()
        ),
        graph_entry("engine onnx, graph masked", "masked", masked, lambda f: by_mlmfast(f, "onnx", None)),
        graph_entry("ONNX Runtime, graph pll", "pll", pll, onnx_graph),
    ]


def student_entries(student: Path, graph: Path | None) -> list[Entry]:
    return [
        Entry("torch, float32", partial(by_mlmfast, student, "torch", "float32")),
        *(
            Entry(f"native, {precision}", partial(by_mlmfast, student, "native", precision), bound)
            for precision, bound in NATIVE.items()
        ),
        graph_entry(
            "engine onnx, graph single-pass", "single-pass", graph, lambda f: by_mlmfast(f, "onnx", None)
        ),
        graph_entry(
            "ONNX Runtime, graph single-pass",
            "single-pass",
            graph,
            onnx_graph,
        ),
    ]


def graph_entry(name: str, kind: str, folder: Path | None, load: Callable[[Path], ScoreText]) -> Entry:
    if folder is None:
        reason = f"no graph was given; make one with `mlmfast export --kind {kind}`"
        return Entry(name, lambda: load(Path()), absent=reason)
    return Entry(name, partial(load, folder))


def measure(entries: Sequence[Entry], texts: Sequence[str], calls: int, rounds: int) -> dict[str, Latencies]:
    """Loads all, lets each score all texts, then times `calls` calls of each, of one text, in rounds."""
    found = {entry.name: Latencies(unavailable=entry.absent) for entry in entries}
    running: dict[str, ScoreText] = {}
    for entry in entries:
        if entry.absent is None:
            try:
                running[entry.name] = entry.load()
            except (MlmfastError, ImportError) as error:
                found[entry.name].unavailable = str(error)
    for name, score in running.items():
        found[name].log_probs = [score(text) for text in texts]
    for part in np.array_split(np.arange(calls), rounds):
        for name, score in running.items():
            for text in texts[:WARM_UP_CALLS]:
                score(text)
            for call in part:
                text = texts[call % len(texts)]
                started = time.perf_counter()
                score(text)
                found[name].seconds.append(time.perf_counter() - started)
    return found


def table(found: Mapping[str, Latencies], bounds: Mapping[str, Bound]) -> tuple[str, list[str]]:
    """Markdown, and who disagrees with the first. Raises SystemExit if that did not run."""
    baseline_name, baseline = next(iter(found.items()))
    if baseline.unavailable:
        raise SystemExit(f"the baseline, {baseline_name}, is not available: {baseline.unavailable}")
    lines = [
        "| contestant | p50, ms | p99, ms | ratio of p50 | max difference per token | per text |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    disagreeing = []
    for name, own in found.items():
        if own.unavailable:
            lines.append(f"| {name} | not available: {own.unavailable} |||||")
            continue
        apart = apart_from(own, baseline)
        ratio = f"{baseline.milliseconds(0.5) / own.milliseconds(0.5):.2f}"
        if not apart.within(bounds[name]):
            disagreeing.append(name)
            ratio = "disagrees"
        lines.append(
            f"| {name} | {own.milliseconds(0.5):.3f} | {own.milliseconds(0.99):.3f} | {ratio} | "
            f"{apart.per_token:.1e} | {apart.per_text:.1e} |"
        )
    return "\n".join(lines), disagreeing


def apart_from(own: Latencies, baseline: Latencies) -> Difference:
    """Infinite where the two scored other numbers of tokens."""
    if [len(text) for text in own.log_probs] != [len(text) for text in baseline.log_probs]:
        return Difference(np.inf, np.inf)
    return difference(own.log_probs, baseline.log_probs)


def pll_goal(found: Mapping[str, Latencies], disagreeing: Sequence[str]) -> str:
    """The fastest of ours that is exact against the faster of Hugging Face's."""

    def fastest(names: Sequence[str]) -> str | None:
        running = [n for n in names if n in found and found[n].unavailable is None and n not in disagreeing]
        return min(running, key=lambda name: found[name].milliseconds(0.5), default=None)

    rival = fastest(HUGGINGFACE)
    ours = fastest([f"native, {precision}" for precision, bound in NATIVE.items() if bound is EXACT])
    if rival is None or ours is None:
        return "- goal of PLL: not judged, as nobody to compare agrees"
    ratio = found[rival].milliseconds(0.5) / found[ours].milliseconds(0.5)
    verdict = "met" if ratio >= WANTED_RATIO else "missed"
    return f"- {ours} against {rival}: {ratio:.2f}x; goal {WANTED_RATIO:g}x: {verdict}"


def student_goal(found: Mapping[str, Latencies], disagreeing: Sequence[str]) -> str:
    native = [
        n for n in found if n.startswith("native") and found[n].unavailable is None and n not in disagreeing
    ]
    if not native:
        return "- goal of the student: not judged, as nobody of the native engine ran and agreed"
    name = min(native, key=lambda name: found[name].milliseconds(0.5))
    p50 = found[name].milliseconds(0.5)
    verdict = "met" if p50 < WANTED_MS else "missed"
    return f"- student, {name}: p50 {p50:.3f} ms; goal under {WANTED_MS:g} ms: {verdict}"


def texts_of_length(path: Path, num_texts: int, num_tokens: int, tokenizer: Tokenizer) -> list[str]:
    """The first pieces of a text that have `num_tokens` tokens, special ones not counted."""
    num_special = tokenizer.num_special_tokens_to_add(is_pair=False)
    pieces = read_pieces(path, PIECES_PER_TEXT * num_texts, num_tokens + num_special, tokenizer)
    fitting = [piece for piece in pieces if len(tokenizer.encode(piece).ids) == num_tokens + num_special]
    if len(fitting) < num_texts:
        raise SystemExit(
            f"{path}: {len(fitting)} pieces of {num_tokens} tokens, {num_texts} wanted; take fewer"
        )
    return fitting[:num_texts]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="folder or hub id; by default the embedded model")
    parser.add_argument("--masked-graph", type=Path, help="folder of the model's export `masked`")
    parser.add_argument("--pll-graph", type=Path, help="folder of the model's export `pll`")
    parser.add_argument("--student", type=Path, help="folder")
    parser.add_argument("--student-graph", type=Path, help="folder of the student's export `single-pass`")
    parser.add_argument("--text", type=Path, default=INAUGURAL, help="the texts are pieces of it")
    parser.add_argument("--num-tokens", type=int, default=20, help="of a text, special ones not counted")
    parser.add_argument("--num-texts", type=int, default=16)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()

    torch.set_num_threads(1)
    report = Report(options.output)
    report.say(f"`python benchmarks/bench_latency.py {shlex.join(sys.argv[1:])}`\n\n{banner()}")
    tokenizer = Tokenizer.from_file(str(resolve(options.model).folder / "tokenizer.json"))
    texts = texts_of_length(options.text, options.num_texts, options.num_tokens, tokenizer)

    def bench(title: str, entries: list[Entry]) -> tuple[dict[str, Latencies], list[str]]:
        found = measure(entries, texts, options.calls, options.rounds)
        lines, disagreeing = table(found, {entry.name: entry.bound for entry in entries})
        report.say(f"### {title}, one text of {options.num_tokens} tokens a call\n\n{lines}")
        report.disagreeing += [f"{name} ({title})" for name in disagreeing]
        return found, disagreeing

    if options.student is None:
        report.say("- no student is timed: none was given with --student")
    else:
        entries = student_entries(options.student, options.student_graph)
        report.say(student_goal(*bench(f"Student {options.student.name}", entries)))
    report.say(pll_goal(*bench("PLL", pll_entries(options.model, options.masked_graph, options.pll_graph))))
    report.say(
        f"- {options.calls} calls in {options.rounds} interleaved rounds over {len(texts)} texts; "
        f"load average at the end: {load_average()}"
    )
    if report.disagreeing:
        raise SystemExit(f"scores disagree: {', '.join(report.disagreeing)}")


if __name__ == "__main__":
    main()
