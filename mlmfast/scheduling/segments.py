"""Texts longer than the model: cut, or read through half-overlapping windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlmfast.scheduling.csr import offsets_of
from mlmfast.scheduling.masking import word_groups
from mlmfast.types import Int64Array, TokenizedTexts


@dataclass(frozen=True)
class Segments:
    """What is forwarded in place of the texts: one segment per text, or several for a long one.

    texts: the segments as texts; slots int64[N']: the token of the original texts that each segment
    token answers for, -1 for none.
    """

    texts: TokenizedTexts
    slots: Int64Array


def truncate(texts: TokenizedTexts, slots: Int64Array, max_length: int) -> Segments:
    """The first tokens of each text, as many as fit between its leading and trailing special tokens.

    There must be room for one in every text with targets; see `room`.
    """
    pieces = [
        np.concatenate([prefix, content[: max(max_length - len(prefix) - len(suffix), 0)], suffix])
        for prefix, content, suffix in (_frame(texts, index) for index in range(texts.num_texts))
    ]
    return _gather(texts, slots, pieces)


def window(
    texts: TokenizedTexts,
    slots: Int64Array,
    max_length: int,
    *,
    causal: bool = False,
    whole_words: bool = False,
) -> Segments:
    """Half-overlapping windows over the texts longer than max_length; the others stay whole.

    Each target is scored in the window where it is most central; under causal, where between half a
    window and a whole one stands before it. whole_words: a word is scored in one window that holds all
    of it, which there is for words of at most `longest_window_word` tokens. Texts without targets stay
    whole; in the others there must be room for one token; see `room`.
    """
    pieces: list[NDArray[np.int64]] = []
    masks: list[NDArray[np.bool_]] = []
    for index in range(texts.num_texts):
        prefix, content, suffix = _frame(texts, index)
        whole = np.concatenate([prefix, content, suffix])
        if len(whole) <= max_length or (slots[whole] < 0).all():
            pieces.append(whole)
            masks.append(np.ones(len(pieces[-1]), dtype=bool))
            continue
        capacity = max_length - len(prefix) - len(suffix)
        starts, owner = _windows(len(content), capacity, causal)
        if whole_words:
            owner = _word_owners(texts.word_ids[content], starts, capacity)
        for number, start in enumerate(starts):
            inside = content[start : start + capacity]
            pieces.append(np.concatenate([prefix, inside, suffix]))
            ends = [np.full(len(p), number == at) for p, at in ((prefix, 0), (suffix, len(starts) - 1))]
            masks.append(np.concatenate([ends[0], owner[start : start + capacity] == number, ends[1]]))
    segments = _gather(texts, slots, pieces)
    segments.slots[~np.concatenate([*masks, np.zeros(0, dtype=bool)])] = -1
    return segments


def at_first_token(segments: Segments, offsets: Int64Array) -> Segments:
    """One target for each text that had any, at its first token. offsets int64[S+1] of the texts, each of
    which is one segment."""
    starts = segments.texts.offsets[:-1]
    has_targets = np.unique(segments.texts.text_of_token[segments.slots >= 0])
    slots = np.full_like(segments.slots, -1)
    slots[starts[has_targets]] = offsets[has_targets]
    return Segments(segments.texts, slots)


def room(texts: TokenizedTexts, index: int, max_length: int) -> int:
    """Tokens of one text that fit between its leading and trailing special tokens; below 1 if none does."""
    prefix, _, suffix = _frame(texts, index)
    return max_length - len(prefix) - len(suffix)


def _frame(
    texts: TokenizedTexts, index: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Token indices of one text: its leading special tokens, its content, its trailing special tokens."""
    tokens = np.arange(texts.offsets[index], texts.offsets[index + 1])
    content = np.flatnonzero(texts.word_ids[tokens] != -1)
    first, last = (content[0], content[-1] + 1) if len(content) else (len(tokens), len(tokens))
    return tokens[:first], tokens[first:last], tokens[last:]


def _windows(length: int, capacity: int, causal: bool) -> tuple[Int64Array, Int64Array]:
    """Starts of the windows, the last one ending with the text, and the window that owns each place."""
    step = max(capacity // 2, 1)
    starts = np.append(np.arange(0, length - capacity, step), length - capacity)
    if causal:
        begins = np.append(0, starts[:-1] + capacity)
    else:
        begins = np.append(0, (starts[:-1] + starts[1:] + capacity) // 2)
    return starts, np.searchsorted(begins, np.arange(length), side="right") - 1


def _word_owners(word_ids: NDArray[np.int32], starts: Int64Array, capacity: int) -> Int64Array:
    """The window that owns each place when words stay whole: the one whose centre is nearest the word's."""
    begins = np.flatnonzero(np.append(True, word_ids[1:] != word_ids[:-1]))
    lengths = np.diff(np.append(begins, len(word_ids)))
    middle = begins + lengths / 2
    centres = starts + capacity / 2
    nearest = np.searchsorted((centres[:-1] + centres[1:]) / 2, middle, side="right")
    return np.repeat(nearest, lengths)


def longest_window_word(capacity: int) -> int:
    """Tokens of the longest word that some window of `capacity` content tokens always holds whole."""
    return capacity - max(capacity // 2, 1) + 1


def _gather(texts: TokenizedTexts, slots: Int64Array, pieces: list[NDArray[np.int64]]) -> Segments:
    take = np.concatenate([*pieces, np.zeros(0, dtype=np.int64)])
    return Segments(
        texts=TokenizedTexts(
            input_ids=texts.input_ids[take],
            offsets=offsets_of(np.array([len(p) for p in pieces], dtype=np.int64)),
            token_type_ids=None if texts.token_type_ids is None else texts.token_type_ids[take],
            word_ids=texts.word_ids[take],
            char_spans=texts.char_spans[take],
        ),
        slots=slots[take],
    )


def multi_token_words(texts: TokenizedTexts) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Text index, first token and end token of every word of more than one token, int64[k] each."""
    _, offsets = word_groups(texts)
    many = np.flatnonzero(np.diff(offsets) > 1)
    starts = offsets[many]
    return np.searchsorted(texts.offsets, starts, side="right") - 1, starts, offsets[many + 1]
