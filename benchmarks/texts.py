"""The texts that are scored."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "data" / "text"
BLIMP = FOLDER / "blimp_sample.jsonl"
INAUGURAL = FOLDER / "inaugural.txt"

WORDS_PER_PARAGRAPH = 150
"""About 200 word pieces."""


def read_pairs(path: Path) -> list[dict[str, str]]:
    """BLiMP's minimal pairs, jsonl, gzipped if its name says so."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def read_sentences(path: Path, num_sentences: int, seed: int) -> list[str]:
    """Random acceptable sentences of a file of minimal pairs."""
    sentences = [pair["good"] for pair in read_pairs(path)]
    return random.Random(seed).sample(sentences, min(num_sentences, len(sentences)))


def read_paragraphs(path: Path, num_paragraphs: int) -> list[str]:
    """The first paragraphs of WORDS_PER_PARAGRAPH words of a text."""
    words = path.read_text(encoding="utf-8").split()
    starts = range(0, len(words) - WORDS_PER_PARAGRAPH + 1, WORDS_PER_PARAGRAPH)
    return [" ".join(words[start : start + WORDS_PER_PARAGRAPH]) for start in starts][:num_paragraphs]
