"""CSR helpers, packing and the forms of a batch against loops."""

from __future__ import annotations

from itertools import accumulate, groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_rows import MASK_ID, PlainText, masked_ids, texts_and_slots, to_columns, to_rows

from mlmfast.errors import SettingsError
from mlmfast.scheduling import Masking, expand, mask_rows, pack, pad, row_batch
from mlmfast.scheduling.batches import distinct_targets, in_batch_order, joined, rows_between
from mlmfast.scheduling.csr import distinct, offsets_of, ranges, runs, select
from mlmfast.types import Int64Array, TargetOutputs

COUNTS = st.lists(st.integers(0, 4), max_size=8)
KINDS = st.sampled_from(["original", "word_l2r", "whole_word", "stride", "none"])
LENGTHS = st.lists(st.integers(0, 12), max_size=30)


@given(counts=COUNTS)
def test_offsets_are_running_sums(counts: list[int]) -> None:
    offsets = offsets_of(np.array(counts, dtype=np.int32))
    assert offsets.dtype == np.int64
    assert offsets.tolist() == [sum(counts[:k]) for k in range(len(counts) + 1)]


@given(pairs=st.lists(st.tuples(st.integers(-5, 50), st.integers(0, 4)), max_size=8))
def test_ranges_are_aranges_end_to_end(pairs: list[tuple[int, int]]) -> None:
    found = ranges(np.array([s for s, _ in pairs]), np.array([c for _, c in pairs]))
    assert found.dtype == np.int64
    assert found.tolist() == [k for start, count in pairs for k in range(start, start + count)]


@given(counts=COUNTS, data=st.data())
def test_select_takes_rows_in_the_order_asked(counts: list[int], data: st.DataObject) -> None:
    picks = data.draw(st.lists(st.integers(0, len(counts) - 1), max_size=10)) if counts else []
    rows = [list(range(sum(counts[:k]), sum(counts[: k + 1]))) for k in range(len(counts))]
    elements, offsets = select(offsets_of(np.array(counts)), np.array(picks, dtype=np.int64))
    assert [elements[offsets[k] : offsets[k + 1]].tolist() for k in range(len(picks))] == [
        rows[p] for p in picks
    ]
    assert offsets[-1] == len(elements)


@given(values=st.lists(st.integers(0, 9), max_size=12))
def test_distinct_is_unique_with_its_inverse(values: list[int]) -> None:
    found, places = distinct(np.array(values, dtype=np.int32), 10)
    assert found.tolist() == sorted(set(values))
    assert found[places].tolist() == values


@given(keys=st.lists(st.integers(0, 2), max_size=12))
def test_runs_are_groups_of_neighbours(keys: list[int]) -> None:
    lengths = [len(list(group)) for _, group in groupby(keys)]
    assert runs(np.array(keys, dtype=np.int64)).tolist() == [0, *accumulate(lengths)]


@given(lengths=LENGTHS, budget=st.integers(1, 40))
def test_packing_is_the_longest_first_greedy_loop(lengths: list[int], budget: int) -> None:
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        longest = max(lengths[batches[-1][0]], 1) if batches else 0
        if batches and (len(batches[-1]) + 1) * longest <= budget:
            batches[-1].append(index)
        else:
            batches.append([index])
    found = [batch.tolist() for batch in pack(np.array(lengths, dtype=np.int64), budget)]
    assert found == batches
    assert sorted(index for batch in found for index in batch) == list(range(len(lengths)))
    assert all(len(b) == 1 or len(b) * max(lengths[i] for i in b) <= budget for b in found)


@pytest.mark.parametrize("budget", [0, -1])
def test_a_budget_below_one_is_refused(budget: int) -> None:
    with pytest.raises(SettingsError, match=f"max_batch_tokens is {budget}"):
        pack(np.array([3]), budget)


@given(case=texts_and_slots(), kind=KINDS)
def test_a_batch_of_all_rows_is_what_selecting_them_gives(
    case: tuple[list[PlainText], Int64Array], kind: str
) -> None:
    """Nothing is copied for all rows in their order; a row more than those makes them be selected."""
    texts, slots = case
    columns = to_columns(texts)
    rows = mask_rows(columns, slots, Masking(kind, 2))
    indices = np.arange(rows.num_rows)
    batch, found = row_batch(columns, rows, indices, MASK_ID)
    twice, _ = row_batch(columns, rows, np.concatenate([indices, indices]), MASK_ID)
    selected = rows_between(twice, 0, rows.num_rows)
    assert found.tolist() == rows.target_slots.tolist()
    for name, column in vars(selected).items():
        np.testing.assert_array_equal(getattr(batch, name), column)
        assert getattr(getattr(batch, name), "dtype", None) == getattr(column, "dtype", None)


@given(case=texts_and_slots(), kind=KINDS, with_types=st.booleans(), data=st.data())
def test_a_batch_expands_to_its_rows(
    case: tuple[list[PlainText], Int64Array], kind: str, with_types: bool, data: st.DataObject
) -> None:
    texts, slots = case
    types = [[i % 2 for i in range(len(text))] for text in texts] if with_types else None
    columns = to_columns(texts, types)
    rows = mask_rows(columns, slots, Masking(kind, 2))
    plain = to_rows(rows)
    picks = data.draw(st.permutations(range(len(plain))))[: data.draw(st.integers(0, len(plain)))]
    batch, target_slots = row_batch(columns, rows, np.array(picks, dtype=np.int64), MASK_ID)
    chosen = [plain[p] for p in picks]
    assert batch.num_rows == len(picks)
    assert len(batch.text_offsets) - 1 == len({row.text for row in chosen})

    packed = expand(batch)
    sides = list(zip(packed.cu_seqlens[:-1], packed.cu_seqlens[1:], strict=True))
    assert [tuple(packed.input_ids[a:b].tolist()) for a, b in sides] == [
        masked_ids(texts, row) for row in chosen
    ]
    lengths = [len(texts[row.text]) for row in chosen]
    assert packed.position_ids.tolist() == [i for n in lengths for i in range(n)]
    assert packed.max_seqlen == max(lengths, default=0)
    if types is None:
        assert packed.token_type_ids is None
    else:
        assert packed.token_type_ids is not None
        assert packed.token_type_ids.tolist() == [t for row in chosen for t in types[row.text]]
    starts = packed.cu_seqlens.tolist()
    targets = [(starts[k] + p, token, slot) for k, row in enumerate(chosen) for p, token, slot in row.targets]
    assert packed.target_indices.tolist() == [t[0] for t in targets]
    assert packed.target_ids.tolist() == [t[1] for t in targets]
    assert target_slots.tolist() == [t[2] for t in targets]
    assert batch.num_targets == len(targets)
    assert packed.input_ids.dtype == packed.position_ids.dtype == packed.cu_seqlens.dtype == np.int32


@given(lengths=LENGTHS)
def test_padded_rows_are_the_packed_ones(lengths: list[int]) -> None:
    cu_seqlens = np.cumsum([0, *lengths], dtype=np.int32)
    values = np.arange(1, sum(lengths) + 1, dtype=np.int32)
    width = max(lengths, default=0)
    padded = pad(values, cu_seqlens, width, -7)
    assert padded.shape == (len(lengths), width)
    expected = [
        values[cu_seqlens[k] : cu_seqlens[k + 1]].tolist() + [-7] * (width - n) for k, n in enumerate(lengths)
    ]
    assert padded.tolist() == expected


@given(indices=st.lists(st.integers(0, 6), max_size=12))
def test_targets_of_one_place_are_grouped(indices: list[int]) -> None:
    places, offsets, order = distinct_targets(np.array(indices, dtype=np.int64))
    assert places.tolist() == sorted(set(indices))
    groups = [order[offsets[k] : offsets[k + 1]].tolist() for k in range(len(places))]
    assert groups == [[t for t, i in enumerate(indices) if i == place] for place in places]
    assert len(order) == len(indices)


@given(case=texts_and_slots(), kind=KINDS, with_types=st.booleans(), data=st.data())
def test_parts_of_a_batch_hold_its_rows(
    case: tuple[list[PlainText], Int64Array], kind: str, with_types: bool, data: st.DataObject
) -> None:
    texts, slots = case
    columns = to_columns(texts, [[1] * len(text) for text in texts] if with_types else None)
    rows = mask_rows(columns, slots, Masking(kind, 2))
    batch, _ = row_batch(columns, rows, np.arange(rows.num_rows), MASK_ID)
    middle = data.draw(st.integers(0, batch.num_rows))
    parts = [rows_between(batch, 0, middle), rows_between(batch, middle, batch.num_rows)]
    whole, expanded = expand(batch), [expand(part) for part in parts]
    for name in ("input_ids", "position_ids", "target_ids", *(["token_type_ids"] if with_types else [])):
        found = np.concatenate([getattr(part, name) for part in expanded])
        assert found.tolist() == getattr(whole, name).tolist()
    start = expanded[0].cu_seqlens[-1]
    targets = [*expanded[0].target_indices, *(expanded[1].target_indices + start)]
    assert targets == whole.target_indices.tolist()
    for part in parts:
        assert len(part.text_offsets) - 1 == len(set(part.row_text.tolist()))


@given(targets=st.lists(st.integers(0, 9), max_size=20))
def test_results_go_back_to_the_batch_order(targets: list[int]) -> None:
    places, offsets, order = distinct_targets(np.array(targets, dtype=np.int64))
    computed = np.repeat(places, np.diff(offsets)).astype(np.float32)
    tops = np.stack([computed, -computed], axis=1).astype(np.int32)
    found = in_batch_order(TargetOutputs(log_prob=computed, top_ids=tops), order)
    assert found.log_prob.tolist() == targets
    assert found.top_ids is not None
    assert found.top_ids.tolist() == [[t, -t] for t in targets]
    assert found.rank is None


def test_joined_results_have_the_columns_of_their_parts() -> None:
    parts = [
        TargetOutputs(np.arange(n, dtype=np.float32), rank=np.arange(n, dtype=np.int32)) for n in (2, 0, 3)
    ]
    found = joined(parts)
    assert found.log_prob.tolist() == [0, 1, 0, 1, 2]
    assert found.rank is not None
    assert found.rank.tolist() == [0, 1, 0, 1, 2]
    assert found.entropy is None
