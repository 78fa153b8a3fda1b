"""How the token budget of a batch changes speed: `python benchmarks/bench_budget.py [--budgets N ...]`.

mlmfast's torch engine scores BLiMP sentences with each budget in turn, one thread. The first budget is the
baseline of the ratios.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from machine import banner
from rounds import EXACT, ROUNDED, Contestant, interleave, table
from texts import BLIMP, read_sentences

from mlmfast.models import resolve

BUDGETS = (512, 1024, 2048, 4096, 8192)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="folder or hub id; by default the embedded model")
    parser.add_argument("--blimp", type=Path, default=BLIMP)
    parser.add_argument("--num-sentences", type=int, default=100)
    parser.add_argument("--budgets", type=int, nargs="+", default=BUDGETS)
    parser.add_argument("--precision", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the choice of sentences")
    options = parser.parse_args()

    folder = resolve(options.model).folder
    sentences = read_sentences(options.blimp, options.num_sentences, options.seed)
    print(f"{banner()}\n- {len(sentences)} sentences, medians of {options.rounds} interleaved rounds\n")
    disagreeing = []
    for precision in options.precision:
        field = [
            Contestant(
                f"{precision}, {budget:,} tokens",
                Path(sys.executable),
                [
                    *("mlmfast", str(folder), "--engine", "torch", "--precision", precision),
                    *("--max-batch-tokens", str(budget)),
                ],
                EXACT if precision == "float32" else ROUNDED,
            )
            for budget in options.budgets
        ]
        found = interleave(field, sentences, options.rounds, warm_up=len(sentences))
        lines, apart = table(found, {contestant.name: contestant.bound for contestant in field})
        print(f"{lines}\n", flush=True)
        disagreeing += apart
    if disagreeing:
        raise SystemExit(f"scores change with the token budget: {', '.join(disagreeing)}")


if __name__ == "__main__":
    main()
