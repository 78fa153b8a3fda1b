"""Scheduling the plain way: lists, loops and strategies; what the columns must agree with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from mlmfast.types import Int64Array, MaskedRows, TokenizedTexts

MASK_ID = 9

PlainText = list[tuple[int, int]]
"""(id, word) per token; word -1 is a special token."""


@dataclass(frozen=True)
class PlainRow:
    """One row: its text's number, masked positions, and (position, id, slot) per target."""

    text: int
    masks: tuple[int, ...]
    targets: tuple[tuple[int, int, int], ...]


def to_columns(texts: list[PlainText], types: list[list[int]] | None = None) -> TokenizedTexts:
    tokens = [token for text in texts for token in text]
    return TokenizedTexts(
        input_ids=np.array([i for i, _ in tokens], dtype=np.int32),
        offsets=np.cumsum([0, *(len(text) for text in texts)], dtype=np.int64),
        token_type_ids=None if types is None else np.array([t for ts in types for t in ts], dtype=np.int32),
        word_ids=np.array([w for _, w in tokens], dtype=np.int32),
        char_spans=np.array([[k, k + 1] for k in range(len(tokens))], dtype=np.int32).reshape(-1, 2),
    )


def to_rows(rows: MaskedRows) -> list[PlainRow]:
    """The columns as plain rows; fails if an offset does not fit its column."""
    assert rows.mask_offsets[0] == rows.target_offsets[0] == 0
    assert rows.mask_offsets[-1] == len(rows.mask_positions)
    assert rows.target_offsets[-1] == len(rows.target_ids)
    assert len(rows.mask_offsets) == len(rows.target_offsets) == rows.num_rows + 1
    return [
        PlainRow(
            int(rows.text_index[r]),
            tuple(rows.mask_positions[rows.mask_offsets[r] : rows.mask_offsets[r + 1]].tolist()),
            tuple(
                (
                    int(rows.target_positions[t]),
                    int(rows.target_ids[t]),
                    int(rows.target_slots[t]),
                )
                for t in range(rows.target_offsets[r], rows.target_offsets[r + 1])
            ),
        )
        for r in range(rows.num_rows)
    ]


def plain_rows(texts: list[PlainText], slots: list[int], kind: str, stride: int = 0) -> list[PlainRow]:
    """Rows of every text, target by target."""
    rows = []
    first = 0
    for number, text in enumerate(texts):
        slot_of = slots[first : first + len(text)]
        first += len(text)
        places = [i for i in range(len(text)) if slot_of[i] >= 0]
        groups: dict[tuple[int, ...], list[int]] = {}
        for rank, place in enumerate(places):
            word = [i for i, (_, w) in enumerate(text) if i == place or (w == text[place][1] and w >= 0)]
            if kind == "original":
                masks = [place]
            elif kind == "word_l2r":
                masks = [i for i in word if i >= place]
            elif kind == "whole_word":
                masks = word
            elif kind == "stride":
                masks = places[rank % stride :: stride]
            else:
                masks = []
            groups.setdefault(tuple(masks), []).append(place)
        rows += [
            PlainRow(number, masks, tuple((p, text[p][0], slot_of[p]) for p in targets))
            for masks, targets in groups.items()
        ]
    return rows


def masked_ids(texts: list[PlainText], row: PlainRow) -> tuple[int, ...]:
    return tuple(MASK_ID if i in row.masks else token for i, (token, _) in enumerate(texts[row.text]))


@st.composite
def plain_texts(
    draw: st.DrawFn, *, num_ids: int = 4, max_texts: int = 6, max_words: int = 5
) -> list[PlainText]:
    """Few ids, so that rows coincide; specials at the ends and in the middle, words of several tokens."""
    texts = []
    for _ in range(draw(st.integers(0, max_texts))):
        text: PlainText = []
        word = 0
        for kind in draw(st.lists(st.sampled_from(["special", "one", "two", "five"]), max_size=max_words)):
            if kind == "special":
                text.append((draw(st.sampled_from([0, MASK_ID])), -1))
                continue
            length = {"one": 1, "two": 2, "five": 5}[kind]
            text += [(draw(st.integers(1, num_ids)), word) for _ in range(length)]
            word += 1
        if draw(st.booleans()):
            text = [(7, -1), *text, (8, -1)]
        texts.append(text)
    return texts


@st.composite
def slots_for(draw: st.DrawFn, texts: list[PlainText]) -> Int64Array:
    """Distinct places in random order, -1 for tokens that are no targets (specials among the targets)."""
    num_tokens = sum(len(text) for text in texts)
    wanted = draw(st.lists(st.booleans(), min_size=num_tokens, max_size=num_tokens))
    places = draw(st.permutations(range(num_tokens)))
    return np.array([p if w else -1 for p, w in zip(places, wanted, strict=True)], dtype=np.int64)


@st.composite
def texts_and_slots(draw: st.DrawFn, num_ids: int = 4) -> tuple[list[PlainText], Int64Array]:
    texts = draw(plain_texts(num_ids=num_ids))
    return texts, draw(slots_for(texts))
