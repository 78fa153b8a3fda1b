"""Cut and windowed texts: every target once, in the right window, under the limit."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from plain_rows import PlainText, to_columns

from mlmfast.scheduling import Segments, truncate, window
from mlmfast.scheduling.segments import longest_window_word, room

BOS, EOS = (0, -1), (8, -1)


@st.composite
def long_texts(draw: st.DrawFn, longest_word: int = 6) -> list[PlainText]:
    """Texts of up to 40 words with any frame of special tokens, some without content."""
    texts = []
    for _ in range(draw(st.integers(0, 3))):
        lengths = draw(st.lists(st.integers(1, longest_word), max_size=40))
        content: PlainText = [(100 + w, w) for w, n in enumerate(lengths) for _ in range(n)]
        if content and draw(st.booleans()):
            content.insert(draw(st.integers(1, len(content))), (9, -1))
        texts.append([BOS] * draw(st.integers(0, 2)) + content + [EOS] * draw(st.integers(0, 2)))
    return texts


def targets_of(texts: list[PlainText]) -> np.ndarray:
    """Slots for words; the last special token of a text that has words is a target as well."""
    slots = []
    for text in texts:
        words = [w for _, w in text]
        final = max(words, default=-1) >= 0
        slots += [w >= 0 or (final and i == len(text) - 1) for i, w in enumerate(words)]
    return np.where(slots, np.arange(len(slots)), -1).astype(np.int64)


def frame(text: PlainText) -> tuple[int, int]:
    """Numbers of leading and trailing special tokens."""
    places = [i for i, (_, word) in enumerate(text) if word >= 0]
    return (places[0], len(text) - places[-1] - 1) if places else (len(text), 0)


def pieces(segments: Segments) -> list[list[tuple[int, int, int]]]:
    """(id, word, slot) of every token of every segment."""
    ids, words, slots = segments.texts.input_ids, segments.texts.word_ids, segments.slots
    assert len(ids) == len(words) == len(slots) == segments.texts.offsets[-1]
    return [
        list(zip(ids[a:b].tolist(), words[a:b].tolist(), slots[a:b].tolist(), strict=True))
        for a, b in zip(segments.texts.offsets[:-1], segments.texts.offsets[1:], strict=True)
    ]


@given(texts=long_texts(), max_length=st.integers(1, 30))
def test_truncate_keeps_the_frame_and_the_first_tokens(texts: list[PlainText], max_length: int) -> None:
    columns = to_columns(texts)
    assume(all(room(columns, i, max_length) > 0 for i in range(len(texts))))
    slots = targets_of(texts)
    expected = []
    first = 0
    for text in texts:
        numbered = [(*token, int(slots[first + i])) for i, token in enumerate(text)]
        first += len(text)
        before, after = frame(text)
        end = len(text) - after
        kept = min(end - before, max_length - before - after)
        expected.append(numbered[: before + kept] + numbered[end:])
    found = pieces(truncate(columns, slots, max_length))
    assert found == expected
    assert all(len(piece) <= max_length for piece in found)


def check_windows(
    texts: list[PlainText], max_length: int, *, causal: bool = False, whole_words: bool = False
) -> dict[int, tuple[int, int, int, int]]:
    """Whatever the options: limits, frames and each target once.

    Returns, for every target of the content of an overlong text: its place in that content, the start and
    the end of the window that scores it, and the length of the content.
    """
    columns = to_columns(texts)
    slots = targets_of(texts)
    segments = window(columns, slots, max_length, causal=causal, whole_words=whole_words)
    found = pieces(segments)
    assert sorted(s for piece in found for _, _, s in piece if s >= 0) == [s for s in slots if s >= 0]

    where = {}
    rest = iter(found)
    first = 0
    for text in texts:
        numbered = [(*token, int(slots[first + i])) for i, token in enumerate(text)]
        before, after = frame(text)
        content = text[before : len(text) - after]
        if len(text) <= max_length or not content:
            assert next(rest) == numbered
            first += len(text)
            continue
        capacity = max_length - before - after
        step = max(capacity // 2, 1)
        starts = [*range(0, len(content) - capacity, step), len(content) - capacity]
        for start in starts:
            piece = next(rest)
            assert [token[:2] for token in piece] == (
                text[:before] + content[start : start + capacity] + text[len(text) - after :]
            )
            assert len(piece) <= max_length
            for _, _, slot in piece[before : len(piece) - after]:
                if slot >= 0:
                    where[slot] = (slot - first - before, start, start + capacity, len(content))
            assert [s for _, _, s in piece[:before]] == [-1] * before
            ends = [s for _, _, s in piece[len(piece) - after :]] if after else []
            assert ends == [-1] * len(ends) or start == starts[-1]
        first += len(text)
    assert next(rest, None) is None
    return where


@given(texts=long_texts(), max_length=st.integers(1, 30))
def test_each_target_is_scored_once_where_it_is_most_central(texts: list[PlainText], max_length: int) -> None:
    columns = to_columns(texts)
    assume(all(room(columns, i, max_length) > 0 for i in range(len(texts))))
    for place, start, end, length in check_windows(texts, max_length).values():
        capacity = end - start
        step = max(capacity // 2, 1)
        starts = [*range(0, length - capacity, step), length - capacity]
        distances = [abs(place + 0.5 - (s + capacity / 2)) for s in starts if s <= place < s + capacity]
        assert abs(place + 0.5 - (start + end) / 2) == min(distances)


@given(texts=long_texts(), max_length=st.integers(1, 30))
def test_causal_targets_have_at_least_half_a_window_before_them(
    texts: list[PlainText], max_length: int
) -> None:
    columns = to_columns(texts)
    assume(all(room(columns, i, max_length) > 0 for i in range(len(texts))))
    for place, start, end, _ in check_windows(texts, max_length, causal=True).values():
        assert place - start >= min(place, (end - start) // 2)


@given(max_length=st.integers(3, 30), data=st.data())
def test_words_stay_whole_up_to_the_longest_a_window_always_holds(
    max_length: int, data: st.DataObject
) -> None:
    capacity = max_length - 2
    longest = longest_window_word(capacity)
    lengths = data.draw(st.lists(st.integers(1, longest), min_size=1, max_size=30))
    text: PlainText = [BOS, *((w, w) for w, n in enumerate(lengths) for _ in range(n)), EOS]
    where = check_windows([text], max_length, whole_words=True)
    for word, length in enumerate(lengths):
        windows = {where[i][1] for i, (_, w) in enumerate(text) if w == word and i in where}
        assert len(windows) <= 1
        for start in windows:
            first = sum(lengths[:word])
            assert start <= first
            assert first + length <= start + capacity


def test_a_longer_word_fits_no_window_somewhere() -> None:
    """The bound is tight: one token more, and there is a text with a word that every window cuts."""
    for capacity in range(1, 20):
        length = longest_window_word(capacity) + 1
        step = max(capacity // 2, 1)
        starts = range(0, 10 * step, step)
        assert any(
            not any(s <= first and first + length <= s + capacity for s in starts)
            for first in range(8 * step)
        )


def test_a_text_without_targets_is_not_cut_into_windows() -> None:
    text: PlainText = [BOS] * 20
    segments = window(to_columns([text]), np.full(20, -1), 8)
    assert segments.texts.num_texts == 1
