"""The sentences the embedded student is distilled on: `python benchmarks/student_corpus.py DATA OUTPUT`.

DATA holds the folder `text` with `books` (*.txt.gz) and `other`. Writes OUTPUT/train.txt and
OUTPUT/held_out.txt, one sentence a line, in an order drawn by the seed. Neither holds anything of the
files a student is judged on: WikiText, the last lines of sentence_polarity.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
from collections.abc import Iterator
from pathlib import Path

SENTENCE_END = re.compile(r"(?<=[.!?][”’\"') ])\s+|(?<=[.!?])\s+(?=[A-Z“‘\"(])")
WORDS = range(3, 46)
SOURCES = {
    "books": 50_000,
    "masc_tokenised": 10_000,
    "state_union": 3_000,
    "inaugural": 1_000,
    "genesis_web_kjv": 1_000,
    "sentence_polarity": 6_000,
}
"""Sentences drawn of each."""
POLARITY_TESTED = 1_000
"""The last lines of sentence_polarity, left out."""
HELD_OUT = 1_000


def paragraphs(path: Path) -> Iterator[str]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        yield from (line.strip() for line in lines)


def sentences(path: Path, last: int = 0) -> list[str]:
    """Of a sensible length, each once; without those of the `last` paragraphs."""
    kept = list(paragraphs(path))
    parts = (part for paragraph in kept[: len(kept) - last] for part in SENTENCE_END.split(paragraph))
    return list(dict.fromkeys(part for part in parts if len(part.split()) in WORDS))


def source_sentences(data: Path, source: str) -> list[str]:
    if source == "books":
        return [s for path in sorted((data / "text" / "books").glob("*.txt.gz")) for s in sentences(path)]
    (path,) = (data / "text" / "other").glob(f"{source}.txt*")
    return sentences(path, POLARITY_TESTED if source == "sentence_polarity" else 0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    choose = random.Random(options.seed)
    drawn: list[str] = []
    for source, count in SOURCES.items():
        found = source_sentences(options.data, source)
        part = choose.sample(found, min(count, len(found)))
        print(f"{source}: {len(part):,} of {len(found):,} sentences")
        drawn += part
    drawn = list(dict.fromkeys(drawn))
    choose.shuffle(drawn)
    options.output.mkdir(parents=True, exist_ok=True)
    for name, part in (("held_out.txt", drawn[:HELD_OUT]), ("train.txt", drawn[HELD_OUT:])):
        (options.output / name).write_text("".join(f"{s}\n" for s in part), encoding="utf-8")
        print(f"{name}: {len(part):,} sentences, {sum(len(s.split()) for s in part):,} words")


if __name__ == "__main__":
    main()
