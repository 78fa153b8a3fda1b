"""Scoring against peers, one thread: `python benchmarks/bench_scoring.py [--blimp PATH] [--long PATH] ...`.

The plain full-logits loop, minicons (in .venv-minicons, made by benchmarks/peers.sh) and mlmfast score the
same texts in turn. `tokens/s` counts the tokens of all masked copies, `scored tokens/s` the texts' own;
ratios are of median wall and CPU times, the plain loop being 1. A contestant whose scores differ from the
plain loop's by more than its bound gets no ratio, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from machine import banner, load_average
from rounds import EXACT, ROUNDED, Contestant, interleave, table, work
from texts import BLIMP, INAUGURAL, read_paragraphs, read_sentences

from mlmfast.models import resolve

ROOT = Path(__file__).resolve().parent.parent
MINICONS_PYTHON = ROOT / ".venv-minicons" / "bin" / "python"
OURS = (
    ("torch", "float32", EXACT),
    ("torch", "bfloat16", ROUNDED),
    ("native", "float32", EXACT),
    ("native", "bf16x3", EXACT),
    ("native", "bfloat16", ROUNDED),
)
WARM_UP_SENTENCES, WARM_UP_PARAGRAPHS = 50, 1
"""Scored before the first round: a library prepares a kernel for each new shape."""


def contestants(folder: Path) -> list[Contestant]:
    here = Path(sys.executable)
    found = [Contestant("plain loop, float32", here, ["plain", str(folder)], EXACT)]
    if MINICONS_PYTHON.exists():
        found.append(Contestant("minicons, float32", MINICONS_PYTHON, ["minicons", str(folder)], EXACT))
    else:
        print("minicons is not measured: .venv-minicons is missing, make it with benchmarks/peers.sh\n")
    for engine, precision, bound in OURS:
        arguments = ["mlmfast", str(folder), "--engine", engine, "--precision", precision]
        found.append(Contestant(f"mlmfast {engine}, {precision}", here, arguments, bound))
    return found


def bench(title: str, texts: list[str], field: list[Contestant], rounds: int, warm_up: int) -> list[str]:
    """Print one data set's table; the names of those that disagree."""
    found = interleave(field, texts, rounds, warm_up=warm_up)
    lines, disagreeing = table(found, {contestant.name: contestant.bound for contestant in field})
    num_scored, num_copied = work(next(iter(found.values())).log_probs)
    print(f"### {title}: {len(texts)} texts, {num_scored:,} scored tokens, {num_copied:,} in masked copies\n")
    print(f"{lines}\n")
    for name, times in found.items():
        print(f"- {name}: {', '.join(f'{package} {v}' for package, v in times.versions.items())}")
    print(
        f"- medians of {rounds} interleaved rounds; load average at the end: {load_average()}\n", flush=True
    )
    return disagreeing


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="folder or hub id; by default the embedded model")
    parser.add_argument("--blimp", type=Path, default=BLIMP)
    parser.add_argument("--long", type=Path, default=INAUGURAL)
    parser.add_argument("--num-sentences", type=int, default=100, help="0 leaves them out")
    parser.add_argument("--num-paragraphs", type=int, default=2, help="0 leaves them out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the choice of sentences")
    options = parser.parse_args()

    source = resolve(options.model)
    print(f"`python benchmarks/bench_scoring.py {shlex.join(sys.argv[1:])}`\n\n{banner()}")
    print(f"- model: {source.name}, masking: original\n", flush=True)
    field = contestants(source.folder)
    disagreeing = []
    if options.num_sentences:
        sentences = read_sentences(options.blimp, options.num_sentences, options.seed)
        title = f"BLiMP sentences (seed {options.seed})"
        disagreeing += bench(title, sentences, field, options.rounds, WARM_UP_SENTENCES)
    if options.num_paragraphs:
        paragraphs = read_paragraphs(options.long, options.num_paragraphs)
        title = f"Long texts ({options.long.name})"
        disagreeing += bench(title, paragraphs, field, options.rounds, WARM_UP_PARAGRAPHS)
    if disagreeing:
        raise SystemExit(f"scores disagree with the plain loop's: {', '.join(disagreeing)}")


if __name__ == "__main__":
    main()
