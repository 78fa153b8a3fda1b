"""The special tokens around every text."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mlmfast.engines.self_check import PROTEINS, SENTENCES
from mlmfast.errors import UnsupportedModelError
from mlmfast.tokenization import Tokenizer
from mlmfast.types import TokenizedTexts


class Framing(NamedTuple):
    """How many special tokens a tokenizer puts before and after a text."""

    prefix: int
    suffix: int


def sample_texts(tokenizer: Tokenizer) -> TokenizedTexts:
    """A few real texts: sentences, or sequences of proteins."""
    return tokenizer.encode(PROTEINS if tokenizer.protein else SENTENCES)


def framing_of(name: str, tokenizer: Tokenizer) -> Framing:
    """The frame that all texts have. Raises UnsupportedModelError if they differ in it."""
    texts = sample_texts(tokenizer)
    frames = set()
    for start, end in zip(texts.offsets[:-1], texts.offsets[1:], strict=True):
        content = np.flatnonzero(texts.word_ids[start:end] != -1)
        if len(content) != content[-1] - content[0] + 1:
            raise UnsupportedModelError(f"{name}: its tokenizer puts special tokens inside texts")
        frames.add(Framing(int(content[0]), int(end - start - 1 - content[-1])))
    if len(frames) > 1:
        raise UnsupportedModelError(f"{name}: its tokenizer frames texts in different ways: {frames}")
    return frames.pop()
