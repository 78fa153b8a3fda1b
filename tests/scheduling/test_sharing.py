"""Sharing rows: nothing lost, nothing doubled, never another row than one's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_rows import (
    MASK_ID,
    PlainRow,
    PlainText,
    masked_ids,
    plain_rows,
    texts_and_slots,
    to_columns,
    to_rows,
)

from mlmfast.scheduling import Masking, mask_rows, share_rows, sharing
from mlmfast.types import Int64Array

KINDS = st.sampled_from(["original", "word_l2r", "whole_word", "stride", "none"])
CASES = texts_and_slots(num_ids=2)
Case = tuple[list[PlainText], Int64Array]
Content = tuple[tuple[int, ...], tuple[int, ...]]


def check_shared(case: Case, kind: str, types: list[list[int]] | None = None) -> tuple[int, int, int]:
    """Numbers of rows asked for, computed and distinct; fails if a target lost its own row."""
    texts, slots = case
    columns = to_columns(texts, types)
    asked = plain_rows(texts, slots.tolist(), kind, 2)
    shared = to_rows(share_rows(columns, mask_rows(columns, slots, Masking(kind, 2)), MASK_ID))

    def content(row: PlainRow) -> Content:
        return masked_ids(texts, row), () if types is None else tuple(types[row.text])

    def targets(rows: list[PlainRow]) -> list[tuple[int, int, int, Content]]:
        return sorted(
            (slot, place, token, content(row)) for row in rows for place, token, slot in row.targets
        )

    assert targets(shared) == targets(asked)
    assert all(row.targets for row in shared)
    return len(asked), len(shared), len({content(row) for row in asked})


@given(case=CASES, kind=KINDS)
def test_rows_left_are_the_distinct_ones_and_answer_every_target(case: Case, kind: str) -> None:
    _, computed, distinct = check_shared(case, kind)
    assert computed == distinct


@given(case=CASES, kind=KINDS, data=st.data())
def test_token_types_make_rows_differ(case: Case, kind: str, data: st.DataObject) -> None:
    patterns = st.sampled_from([[0], [1], [0, 1]])
    types = [(data.draw(patterns) * len(text))[: len(text)] for text in case[0]]
    _, computed, distinct = check_shared(case, kind, types)
    assert computed == distinct


@given(case=CASES, kind=KINDS)
def test_rows_keep_the_order_of_their_first_appearance(case: Case, kind: str) -> None:
    texts, slots = case
    columns = to_columns(texts)
    asked = plain_rows(texts, slots.tolist(), kind, 2)
    shared = to_rows(share_rows(columns, mask_rows(columns, slots, Masking(kind, 2)), MASK_ID))
    assert [masked_ids(texts, row) for row in shared] == list(
        dict.fromkeys(masked_ids(texts, row) for row in asked)
    )


@pytest.mark.parametrize("bits", [0, 2])
@given(case=CASES, kind=KINDS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_colliding_hashes_never_merge_different_rows(
    monkeypatch: pytest.MonkeyPatch, bits: int, case: Case, kind: str
) -> None:
    mix = sharing._mix

    def weak(*columns: Any) -> Any:
        return mix(*columns) & np.uint64((1 << bits) - 1)

    with monkeypatch.context() as patch:
        patch.setattr(sharing, "_mix", weak)
        asked, computed, distinct = check_shared(case, kind)
    assert distinct <= computed <= asked


@pytest.mark.parametrize("most", [1, 3, 10])
@given(case=CASES, kind=KINDS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_comparing_in_small_pieces_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, most: int, case: Case, kind: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sharing, "MAX_COMPARED", most)
        _, computed, distinct = check_shared(case, kind)
    assert computed == distinct


def test_texts_that_differ_at_the_masked_place_share_a_row() -> None:
    texts: list[PlainText] = [[(1, 0), (2, 1), (3, 2)], [(1, 0), (4, 1), (3, 2)]]
    columns = to_columns(texts)
    shared = share_rows(columns, mask_rows(columns, np.arange(6), Masking("original")), MASK_ID)
    assert [row.targets for row in to_rows(shared) if row.masks == (1,)] == [((1, 2, 1), (1, 4, 4))]
    assert shared.num_rows == 5


def test_copies_are_shared_within_each_token_type() -> None:
    texts: list[PlainText] = [[(1, 0), (2, 1)]] * 4
    columns = to_columns(texts, [[0, 0], [1, 1], [1, 1], [0, 0]])
    shared = share_rows(columns, mask_rows(columns, np.arange(8), Masking("original")), MASK_ID)
    assert [(row.text, row.masks, len(row.targets)) for row in to_rows(shared)] == [
        *((0, (0,), 2), (0, (1,), 2), (1, (0,), 2), (1, (1,), 2))
    ]
