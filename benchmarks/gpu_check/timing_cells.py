"""What the packed engine is timed on: models of random weights, and texts of random words."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from contestant_batches import read_tokenizer
from flops import EncoderSize
from random_model import save_random_model
from vocabularies import VOCABULARIES

SPREAD = 0.25
"""Texts are so much shorter and longer than what their cell is named after, evenly."""
SHORTEST = 3
"""Tokens of a text: one word and two special tokens."""


@dataclass(frozen=True)
class Size:
    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    row_tokens: int
    """About so many in all masked copies of a cell, so that a cell takes the packed engine a tenth of a
    second or so."""


@dataclass(frozen=True)
class Model:
    size: Size
    vocab_size: int

    @property
    def name(self) -> str:
        return f"{self.size.name}, vocabulary {self.vocab_size}"

    def save(self, scratch: Path, device: str) -> Path:
        """Its folder. Weights are drawn on the device, which is quicker."""
        folder = scratch / self.name.replace(" ", "-").replace(",", "")
        with torch.device(device):
            return save_random_model(
                folder,
                vocab_size=self.vocab_size,
                num_layers=self.size.num_layers,
                hidden_size=self.size.hidden_size,
                num_heads=self.size.num_heads,
            )


SIZES = (
    Size("6x384", 6, 384, 12, row_tokens=1_000_000),
    Size("BERT-base", 12, 768, 12, row_tokens=300_000),
    Size("BERT-large", 24, 1024, 16, row_tokens=100_000),
)
LENGTHS = (32, 13, 64, 256)
DRY_SIZE = Size("2x32", 2, 32, 2, row_tokens=60)
DRY_LENGTHS = (6,)
BASE, DRY_BASE = Model(SIZES[1], VOCABULARIES[0]), Model(DRY_SIZE, 500)
"""BERT-base with its own vocabulary, and what stands in for it in a dry run."""


def cell_name(model: Model, length: int) -> str:
    return f"{model.name}, {length} tokens"


TIMED_MODELS = tuple(Model(size, vocab_size) for vocab_size in VOCABULARIES for size in SIZES)
CELLS = {cell_name(model, length): (model.size.name, length) for model in TIMED_MODELS for length in LENGTHS}
"""All of them but a dry run's, by name: the size of the model, the tokens of a text."""


@dataclass(frozen=True)
class Cell:
    texts: Sequence[str]
    lengths: Sequence[int]
    """Tokens of each text, two special ones counted."""

    @property
    def num_scored(self) -> int:
        return sum(length - 2 for length in self.lengths)

    @property
    def row_tokens(self) -> int:
        return sum(length * (length - 2) for length in self.lengths)

    def flops(self, folder: Path) -> int:
        return EncoderSize.of(folder).text_flops(length - 2 for length in self.lengths)


def single_token_words(folder: Path) -> list[str]:
    vocabulary = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    return [word for word in vocabulary if word.isascii() and word.isalpha() and word.islower()]


def make_cell(folder: Path, length: int, row_tokens: int) -> Cell:
    """Texts of about `length` tokens, no two alike, of words that are a token each."""
    generator, words = random.Random(length), single_token_words(folder)
    lengths: list[int] = []
    most = round(length * SPREAD)
    while sum(n * (n - 2) for n in lengths) < row_tokens:
        lengths.append(max(SHORTEST, length + generator.randint(-most, most)))
    texts = [" ".join(generator.choices(words, k=n - 2)) for n in lengths]
    found = [len(encoding.ids) for encoding in read_tokenizer(str(folder))[0].encode_batch(texts)]
    if found != lengths:
        raise RuntimeError(f"{folder}: some words are not a token each, texts have {found}, not {lengths}")
    return Cell(texts, lengths)
