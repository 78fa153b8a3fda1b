"""Texts as the units their n-grams are made of."""

from __future__ import annotations

from collections.abc import Sequence

from mlmfast.errors import SettingsError
from mlmfast.evaluation.ngram_counts import Units
from mlmfast.tokenization import Tokenizer, prepare_protein

UNITS = ("word", "character", "token")


def units_of(
    texts: Sequence[str], unit: str, *, lowercase: bool = False, tokenizer: Tokenizer | None = None
) -> list[Units]:
    """The texts as words (between white space), characters (but white space) or ids of a tokenizer's tokens
    (but special ones; proteins prepared as for scoring).

    Raises SettingsError for another unit, or for tokens without a tokenizer.
    """
    if unit not in UNITS:
        raise SettingsError(f"unknown unit {unit!r}; expected one of {', '.join(UNITS)}")
    if lowercase:
        texts = [text.lower() for text in texts]
    if unit == "word":
        return [text.split() for text in texts]
    if unit == "character":
        return ["".join(text.split()) for text in texts]
    if tokenizer is None:
        raise SettingsError("unit 'token' needs a tokenizer; name a model")
    if tokenizer.protein:
        texts = [prepare_protein(text).sequence for text in texts]
    tokenized = tokenizer.encode(texts)
    ordinary = tokenized.word_ids != -1
    bounds = zip(tokenized.offsets[:-1], tokenized.offsets[1:], strict=True)
    return [tokenized.input_ids[first:last][ordinary[first:last]].tolist() for first, last in bounds]
