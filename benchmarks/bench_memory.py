"""Memory stays flat: peak memory of `mlmfast score` on more and more lines.

`python benchmarks/bench_memory.py [--lines N N ...] [--words LEAST MOST] [--engine E] ...`: every line is
different, and each run is a process of its own. Exits with status 1 if the peak of a run is more than
MAX_GROWTH_MB above that of the first.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import banner
from texts import INAUGURAL

MAX_GROWTH_MB = 32.0


def write_lines(path: Path, num_lines: int, least_words: int, most_words: int) -> None:
    """Different lines of so many random words, always the same ones."""
    choose = random.Random(0)
    words = INAUGURAL.read_text(encoding="utf-8").split()
    with path.open("w", encoding="utf-8") as file:
        for index in range(num_lines):
            num_words = choose.randint(least_words, most_words)
            print(index, *choose.choices(words, k=num_words), file=file)


def peak_of(arguments: list[str]) -> tuple[float, float]:
    """Peak resident memory in MB and seconds of a whole `mlmfast` run. Raises SystemExit if it fails."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", "from mlmfast.cli import main; main()", *arguments])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"mlmfast {' '.join(arguments)} ended with wait status {status}")
    kilobytes = usage.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return kilobytes / 1024, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lines", type=int, nargs="+", default=[1024, 10240], metavar="N")
    parser.add_argument("--words", type=int, nargs=2, default=[4, 4], metavar=("LEAST", "MOST"))
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--model", default="mlmfast-mini-en")
    parser.add_argument("--masking", default="original")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()

    print(
        f"{banner(options.workers)}\n- {Path(options.model).name}, engine {options.engine}, masking "
        f"{options.masking}, {options.precision}, {options.words[0]} to {options.words[1]} words a line\n"
    )
    print("| lines | peak MB | seconds |\n|---:|---:|---:|", flush=True)
    peaks = []
    with tempfile.TemporaryDirectory() as folder:
        for num_lines in options.lines:
            source, output = Path(folder) / f"{num_lines}.txt", Path(folder) / f"{num_lines}.jsonl"
            write_lines(source, num_lines, *options.words)
            peak, seconds = peak_of(
                [
                    *("score", str(source), "--output", str(output), "--quiet"),
                    *("--model", options.model, "--engine", options.engine),
                    *("--masking", options.masking),
                    *("--precision", options.precision, "--workers", str(options.workers)),
                ]
            )
            with output.open(encoding="utf-8") as records:
                num_records = sum(1 for _ in records)
            if num_records != num_lines:
                raise SystemExit(f"{num_lines} lines gave {num_records} records")
            print(f"| {num_lines:,} | {peak:,.1f} | {seconds:,.1f} |", flush=True)
            peaks.append(peak)
    growth = max(peaks) - peaks[0]
    print(f"\ngrowth: {growth:+.1f} MB", flush=True)
    if growth > MAX_GROWTH_MB:
        raise SystemExit(f"memory grew by more than {MAX_GROWTH_MB} MB")


if __name__ == "__main__":
    main()
