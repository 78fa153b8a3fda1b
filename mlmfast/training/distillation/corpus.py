"""The texts that teacher and student both score, held as columns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mlmfast.errors import InputError, TextTooLongError
from mlmfast.io import InputRecord
from mlmfast.scheduling.csr import offsets_of, select
from mlmfast.tokenization import Tokenizer, prepare_protein
from mlmfast.training.distillation.corruption import corrupted_texts
from mlmfast.types import BoolArray, Int32Array, Int64Array, JsonRecord

TEXTS_AT_ONCE = 1024


@dataclass(frozen=True)
class Corpus:
    """S texts. input_ids int32[N], special tokens included; scored bool[N], those that are not special;
    offsets int64[S+1]."""

    texts: tuple[str, ...]
    input_ids: Int32Array
    scored: BoolArray
    offsets: Int64Array

    @property
    def num_texts(self) -> int:
        return len(self.texts)

    @property
    def lengths(self) -> Int64Array:
        """int64[S], tokens of each text, special ones included."""
        return np.diff(self.offsets)

    @property
    def text_of_token(self) -> Int64Array:
        """int64[N]."""
        return np.repeat(np.arange(self.num_texts), self.lengths)

    @property
    def num_tokens(self) -> Int64Array:
        """int64[S], scored tokens of each text."""
        return np.bincount(self.text_of_token[self.scored], minlength=self.num_texts)

    def subset(self, indices: NDArray[np.int64]) -> Corpus:
        """The texts at `indices`, in that order."""
        tokens, offsets = select(self.offsets, indices)
        texts = tuple(self.texts[index] for index in indices)
        return Corpus(texts, self.input_ids[tokens], self.scored[tokens], offsets)

    def __add__(self, other: Corpus) -> Corpus:
        return Corpus(
            self.texts + other.texts,
            np.concatenate([self.input_ids, other.input_ids]),
            np.concatenate([self.scored, other.scored]),
            offsets_of(np.concatenate([self.lengths, other.lengths])),
        )

    def describe(self) -> JsonRecord:
        """Its size, and a checksum over its tokens and where texts end."""
        digest = hashlib.sha256(self.offsets.astype("<i8").tobytes())
        digest.update(self.input_ids.astype("<i4").tobytes())
        return {"texts": self.num_texts, "tokens": int(self.scored.sum()), "sha256": digest.hexdigest()}


@dataclass(frozen=True)
class TextCounts:
    """Of what was read: texts without a token, longer than the model takes, unreadable; these are left out.
    num_variants_left_out: corrupted variants without a token or too long."""

    num_texts: int = 0
    num_empty: int = 0
    num_overlong: int = 0
    num_unreadable: int = 0
    num_variants: int = 0
    num_variants_left_out: int = 0

    @property
    def num_skipped(self) -> int:
        """Records that could not be used; an empty one is none."""
        return self.num_overlong + self.num_unreadable


def encoded(texts: Sequence[str], tokenizer: Tokenizer) -> Corpus:
    """The texts with their tokens, whatever their lengths."""
    prepared = [prepare_protein(text).sequence for text in texts] if tokenizer.protein else list(texts)
    ids, scored, lengths = [], [], []
    for start in range(0, len(prepared), TEXTS_AT_ONCE):
        tokens = tokenizer.encode(prepared[start : start + TEXTS_AT_ONCE])
        ids.append(tokens.input_ids)
        scored.append(tokens.word_ids != -1)
        lengths.append(tokens.lengths)
    if not ids:
        return Corpus((), np.zeros(0, np.int32), np.zeros(0, np.bool_), np.zeros(1, np.int64))
    offsets = offsets_of(np.concatenate(lengths))
    return Corpus(tuple(prepared), np.concatenate(ids), np.concatenate(scored), offsets)


def read_corpus(
    records: Iterable[tuple[str, InputRecord]],
    tokenizer: Tokenizer,
    max_length: int,
    *,
    where: str,
    on_error: str = "raise",
) -> tuple[Corpus, TextCounts]:
    """The texts of records, each with the name of its source; where: names all of the sources.

    Texts without a token are left out and counted. Raises InputError, placed, for a record that cannot be
    read or is longer than the model takes, unless on_error is `skip`, and if no text is left.
    """
    texts, places = [], []
    num_unreadable = 0
    for name, record in records:
        place = f"{name}, line {record.line}"
        if record.text is None:
            if on_error == "raise":
                raise InputError("no text" if record.error is None else record.error.reason, where=place)
            num_unreadable += 1
        else:
            texts.append(record.text)
            places.append(place)
    corpus = encoded(texts, tokenizer)
    is_long = corpus.lengths > max_length
    is_empty = corpus.num_tokens == 0
    if is_long.any() and on_error == "raise":
        index = int(np.flatnonzero(is_long)[0])
        raise TextTooLongError(
            f"{corpus.lengths[index]} tokens, but the model takes {max_length} (special tokens included); "
            "shorten it, or leave such texts out with --on-error skip",
            where=places[index],
        )
    counts = TextCounts(
        num_texts=len(texts) + num_unreadable,
        num_empty=int(is_empty.sum()),
        num_overlong=int(is_long.sum()),
        num_unreadable=num_unreadable,
    )
    kept = np.flatnonzero(~is_long & ~is_empty)
    if len(kept) == 0:
        raise InputError(
            f"no text: {counts.num_texts} lines, none of which can be used; give a file with texts",
            where=where,
        )
    return corpus.subset(kept), counts


def with_corrupted(
    corpus: Corpus, counts: TextCounts, variants: int, seed: int, tokenizer: Tokenizer, max_length: int
) -> tuple[Corpus, TextCounts]:
    """The texts, then `variants` corrupted ones of each, but for those without a token or too long."""
    if variants == 0:
        return corpus, counts
    corrupted = encoded(corrupted_texts(corpus.texts, variants, seed), tokenizer)
    kept = np.flatnonzero((corrupted.lengths <= max_length) & (corrupted.num_tokens > 0))
    left_out = corrupted.num_texts - len(kept)
    return corpus + corrupted.subset(kept), replace(
        counts, num_variants=len(kept), num_variants_left_out=left_out
    )
