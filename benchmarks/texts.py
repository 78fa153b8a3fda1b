"""The texts that are scored."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

from tokenizers import Tokenizer

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
    """Random acceptable sentences of a file of minimal pairs. Raises SystemExit if it has fewer."""
    sentences = [pair["good"] for pair in read_pairs(path)]
    if len(sentences) < num_sentences:
        raise SystemExit(f"{path}: {len(sentences)} pairs, fewer than {num_sentences}; use --num-sentences")
    return random.Random(seed).sample(sentences, num_sentences)


def read_paragraphs(path: Path, num_paragraphs: int) -> list[str]:
    """The first paragraphs of WORDS_PER_PARAGRAPH words of a text. Raises SystemExit if it has fewer."""
    words = path.read_text(encoding="utf-8").split()
    if len(words) < num_paragraphs * WORDS_PER_PARAGRAPH:
        raise SystemExit(
            f"{path}: {len(words)} words, too few for {num_paragraphs} paragraphs of {WORDS_PER_PARAGRAPH}; "
            "use --num-paragraphs"
        )
    starts = range(0, num_paragraphs * WORDS_PER_PARAGRAPH, WORDS_PER_PARAGRAPH)
    return [" ".join(words[start : start + WORDS_PER_PARAGRAPH]) for start in starts]


def read_pieces(path: Path, num_pieces: int, num_tokens: int, tokenizer: Tokenizer) -> list[str]:
    """The first pieces of a text of as many words as fit into num_tokens tokens, special tokens counted.

    Raises SystemExit if the text has fewer.
    """
    words = path.read_text(encoding="utf-8").split()
    lengths = [len(encoding.ids) for encoding in tokenizer.encode_batch(words, add_special_tokens=False)]
    room = num_tokens - tokenizer.num_special_tokens_to_add(is_pair=False)
    pieces: list[str] = []
    start = used = 0
    for index, length in enumerate(lengths):
        if used + length > room:
            pieces.append(" ".join(words[start:index]))
            start, used = index, 0
            if len(pieces) == num_pieces:
                return pieces
        used += length
    raise SystemExit(
        f"{path}: only {len(pieces)} pieces of {num_tokens} tokens, {num_pieces} wanted; take fewer"
    )
