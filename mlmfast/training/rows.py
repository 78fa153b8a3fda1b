"""Texts to the rows a model is trained on, held as columns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np

from mlmfast.errors import InputError, ModelError, SettingsError, TextTooLongError
from mlmfast.io import InputRecord
from mlmfast.scheduling.csr import offsets_of, ranges
from mlmfast.scheduling.masking import word_groups
from mlmfast.tokenization import Tokenizer, prepare_protein
from mlmfast.training.settings import RowSettings
from mlmfast.types import Int32Array, Int64Array
from mlmfast.windows import LONGEST_LONE_WORD

RECORDS_AT_ONCE = 1024


@dataclass(frozen=True)
class Contents:
    """Texts without special tokens: input_ids int32[C], word_index int64[C] counted over all texts,
    offsets int64[S+1]."""

    input_ids: Int32Array
    word_index: Int64Array
    offsets: Int64Array


@dataclass(frozen=True)
class Allowed:
    """What a text may be. num_tokens: special ones not counted, None for any; one_word: of many tokens."""

    num_tokens: int | None
    one_word: bool

    def check(self, num_tokens: int, num_words: int, where: str) -> None:
        """Raises TextTooLongError, InputError."""
        if self.num_tokens is not None and num_tokens > self.num_tokens:
            raise TextTooLongError(
                f"{num_tokens} tokens, but a row takes {self.num_tokens} (beside the special ones); use "
                "--overlong split or truncate, or --block-tokens",
                where=where,
            )
        if not self.one_word and num_words == 1 and num_tokens > LONGEST_LONE_WORD:
            raise InputError(
                f"the tokenizer takes all {num_tokens} tokens of this text for one word; do without "
                "--whole-word",
                where=where,
            )


@dataclass(frozen=True)
class TrainingRows:
    """R rows, special tokens included.

    input_ids int32[N]; word_index int64[N], -1 for a special token; offsets int64[R+1]; num_texts read,
    num_empty of them without a token; num_unknown: ordinary tokens that are the unknown token.
    """

    input_ids: Int32Array
    word_index: Int64Array
    offsets: Int64Array
    num_texts: int
    num_empty: int
    num_unknown: int

    @property
    def num_rows(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_tokens(self) -> int:
        """Ordinary tokens."""
        return int((self.word_index >= 0).sum())

    def sha256(self) -> str:
        """Over the tokens and where rows end."""
        digest = hashlib.sha256(self.offsets.astype("<i8").tobytes())
        digest.update(self.input_ids.astype("<i4").tobytes())
        return digest.hexdigest()


def training_rows(
    records: Iterable[tuple[str, InputRecord]],
    tokenizer: Tokenizer,
    max_length: int,
    settings: RowSettings,
    *,
    where: str,
    whole_word: bool = False,
) -> TrainingRows:
    """The rows of records, each with the name of its source; max_length: tokens of the longest row.

    where: names all of the sources. whole_word: words will be masked whole.

    Texts without a token are left out and counted. Special tokens typed in a text are plain text. Raises
    InputError, placed, for a record that cannot be read or does not fit, and if there is no token at all;
    SettingsError for blocks that do not fit the model.
    """
    prefix, suffix = _frame(tokenizer)
    length = settings.block_tokens or max_length
    room = length - len(prefix) - len(suffix)
    if room < 1 or length > max_length:
        raise SettingsError(
            f"rows of {length} tokens: expected {len(prefix) + len(suffix) + 1} (one beside the special "
            f"ones) to {max_length} (what the model takes)"
        )
    allowed = Allowed(
        num_tokens=room if settings.overlong == "error" and settings.block_tokens is None else None,
        one_word=not whole_word,
    )
    contents = _contents(records, tokenizer, allowed)
    lengths = np.diff(contents.offsets)
    num_texts, num_empty = len(lengths), int((lengths == 0).sum())
    if num_empty == num_texts:
        raise InputError(
            f"no text: {num_texts} lines, none of which has a token; give a file with texts", where=where
        )
    if settings.block_tokens is not None:
        starts = np.arange(0, contents.offsets[-1], room)
        counts = np.minimum(room, contents.offsets[-1] - starts)
    elif settings.overlong == "truncate":
        starts, counts = contents.offsets[:-1], np.minimum(lengths, room)
    else:
        starts, counts = _split(contents.offsets[:-1], lengths, room)
    ids, words, offsets = _framed(contents, starts[counts > 0], counts[counts > 0], prefix, suffix)
    num_unknown = int(np.sum((ids == tokenizer.special.unknown_id) & (words >= 0)))
    return TrainingRows(ids, words, offsets, num_texts, num_empty, num_unknown)


def _frame(tokenizer: Tokenizer) -> tuple[Int32Array, Int32Array]:
    """The special tokens before and after every text."""
    probe = tokenizer.encode(["A"])
    content = np.flatnonzero(probe.word_ids != -1)
    if len(content) == 0:
        raise ModelError("the tokenizer makes no token of the text 'A'")
    return probe.input_ids[: content[0]], probe.input_ids[content[-1] + 1 :]


def _contents(records: Iterable[tuple[str, InputRecord]], tokenizer: Tokenizer, allowed: Allowed) -> Contents:
    ids, words, lengths = [], [], []
    word_base = 0
    source = iter(records)
    while window := list(islice(source, RECORDS_AT_ONCE)):
        texts = tokenizer.encode([_text(name, record, tokenizer.protein) for name, record in window])
        ordinary = texts.word_ids != -1
        text_of = np.repeat(np.arange(len(window)), texts.lengths)[ordinary]
        groups = word_groups(texts)[0][ordinary]
        num_tokens = np.bincount(text_of, minlength=len(window))
        first_of_word = np.unique(groups, return_index=True)[1]
        num_words = np.bincount(text_of[first_of_word], minlength=len(window))
        for place, tokens, of_words in zip(window, num_tokens.tolist(), num_words.tolist(), strict=True):
            allowed.check(tokens, of_words, _place(*place))
        ids.append(texts.input_ids[ordinary])
        words.append(groups + word_base)
        lengths.append(num_tokens)
        word_base += len(texts.input_ids)
    if not ids:
        return Contents(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(1, np.int64))
    return Contents(np.concatenate(ids), np.concatenate(words), offsets_of(np.concatenate(lengths)))


def _text(name: str, record: InputRecord, protein: bool) -> str:
    if record.error is not None or record.text is None:
        reason = "no text" if record.error is None else record.error.reason
        raise InputError(reason, where=_place(name, record))
    return prepare_protein(record.text).sequence if protein else record.text


def _place(name: str, record: InputRecord) -> str:
    return f"{name}, line {record.line}"


def _split(starts: Int64Array, lengths: Int64Array, room: int) -> tuple[Int64Array, Int64Array]:
    """Starts and lengths of the parts of each text: the fewest that fit, at most one longer than others."""
    num_parts = -(-lengths // room)
    text = np.repeat(np.arange(len(lengths)), num_parts)
    part = ranges(np.zeros(len(lengths)), num_parts)
    size, longer = lengths[text] // num_parts[text], lengths[text] % num_parts[text]
    return starts[text] + part * size + np.minimum(part, longer), size + (part < longer)


def _framed(
    contents: Contents, starts: Int64Array, counts: Int64Array, prefix: Int32Array, suffix: Int32Array
) -> tuple[Int32Array, Int64Array, Int64Array]:
    """input_ids, word_index and offsets of rows that hold parts of the contents between special tokens."""
    offsets = offsets_of(counts + len(prefix) + len(suffix))
    ids = np.empty(offsets[-1], dtype=np.int32)
    words = np.full(offsets[-1], -1, dtype=np.int64)
    to, taken = ranges(offsets[:-1] + len(prefix), counts), ranges(starts, counts)
    ids[to], words[to] = contents.input_ids[taken], contents.word_index[taken]
    ids[offsets[:-1, None] + np.arange(len(prefix))] = prefix
    ids[offsets[1:, None] - len(suffix) + np.arange(len(suffix))] = suffix
    return ids, words, offsets
