"""Maskings against loops over lists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_rows import PlainText, plain_rows, plain_texts, texts_and_slots, to_columns, to_rows

from mlmfast.errors import SettingsError
from mlmfast.scheduling import Masking, mask_rows
from mlmfast.scheduling.masking import word_groups
from mlmfast.scheduling.segments import multi_token_words
from mlmfast.types import Int64Array

EXACT = ("original", "word_l2r", "none", "causal", "whole_word")


@pytest.mark.parametrize("kind", EXACT)
@given(case=texts_and_slots())
def test_rows_are_those_of_a_loop(kind: str, case: tuple[list[PlainText], Int64Array]) -> None:
    texts, slots = case
    rows = mask_rows(to_columns(texts), slots, Masking(kind))
    assert to_rows(rows) == plain_rows(texts, slots.tolist(), kind)


@given(case=texts_and_slots(), stride=st.integers(1, 9))
def test_stride_masks_every_kth_target(case: tuple[list[PlainText], Int64Array], stride: int) -> None:
    texts, slots = case
    rows = to_rows(mask_rows(to_columns(texts), slots, Masking("stride", stride)))
    assert rows == plain_rows(texts, slots.tolist(), "stride", stride)
    assert all(sum(row.text == text for row in rows) <= stride for text in range(len(texts)))


def test_a_stride_longer_than_any_text_masks_one_target_a_row() -> None:
    texts: list[PlainText] = [[(1, 0), (2, 1), (3, 2)]]
    rows = mask_rows(to_columns(texts), np.arange(3), Masking.parse("stride:999999999"))
    assert to_rows(rows) == plain_rows(texts, [0, 1, 2], "original")


@pytest.mark.parametrize("kind", [*EXACT, "stride"])
@pytest.mark.parametrize("texts", [[], [[]], [[], [(0, -1), (0, -1)], []]])
def test_texts_without_targets_have_no_rows(kind: str, texts: list[PlainText]) -> None:
    columns = to_columns(texts)
    rows = mask_rows(columns, np.full(len(columns.input_ids), -1), Masking(kind, 3))
    assert to_rows(rows) == []


@given(texts=plain_texts())
def test_word_groups_hold_one_word_or_one_special_token(texts: list[PlainText]) -> None:
    group, offsets = word_groups(to_columns(texts))
    keys = [
        (number, place if word == -1 else None, word)
        for number, text in enumerate(texts)
        for place, (_, word) in enumerate(text)
    ]
    expected = [list(dict.fromkeys(keys)).index(key) for key in keys]
    assert group.tolist() == expected
    num_groups = len(set(keys))
    assert [group[offsets[g] : offsets[g + 1]].tolist() for g in range(num_groups)] == [
        [g] * expected.count(g) for g in range(num_groups)
    ]
    assert len(offsets) == max(num_groups, 0) + 1


@given(texts=plain_texts())
def test_multi_token_words_are_found_in_every_text(texts: list[PlainText]) -> None:
    expected = []
    first = 0
    for number, text in enumerate(texts):
        words = [w for _, w in text]
        expected += [
            (number, first + words.index(w), first + words.index(w) + words.count(w))
            for w in dict.fromkeys(words)
            if w >= 0 and words.count(w) > 1
        ]
        first += len(text)
    assert list(zip(*(c.tolist() for c in multi_token_words(to_columns(texts))), strict=True)) == expected


@pytest.mark.parametrize("name", ["original", "word_l2r", "whole_word", "stride:7", "none", "causal"])
def test_a_masking_keeps_its_name(name: str) -> None:
    assert Masking.parse(name).name == name


@pytest.mark.parametrize(
    "name",
    [
        *("", "Original", "original:2", "students", "stride", "stride:", "stride:K", "stride:0", "stride:-1"),
        *("stride:2.0", "stride:²", "stride:٣", "stride:3 ", "stride: 3", "stride:1\n"),
        "stride:" + "9" * 5000,
    ],
)
def test_an_unknown_masking_is_refused_with_the_names(name: str) -> None:
    with pytest.raises(SettingsError, match=r"unknown masking .*stride:K") as raised:
        Masking.parse(name)
    assert len(str(raised.value)) < 300
