"""Texts to rows: special tokens, long texts, blocks, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_runs import LINES, rows_of, tiny_files

from mlmfast.errors import InputError, SettingsError, TextTooLongError
from mlmfast.io import InputRecord, read_records
from mlmfast.training import RowSettings, training_rows

TEXT = "We the people of the United States of America."


def row(rows, index) -> list[int]:
    return rows.input_ids[rows.offsets[index] : rows.offsets[index + 1]].tolist()


def contents(rows) -> list[int]:
    return rows.input_ids[rows.word_index >= 0].tolist()


@pytest.mark.parametrize("name", ["bert", "roberta", "xlm-roberta", "mpnet", "esm2"])
def test_a_text_that_fits_is_a_row_as_it_is_scored(name):
    texts = ["ACDEFG", "MKV"] if name == "esm2" else LINES[:3]
    rows = rows_of(texts, name)
    expected = tiny_files(name).tokenizer.encode(texts)
    assert rows.input_ids.tolist() == expected.input_ids.tolist()
    assert rows.offsets.tolist() == expected.offsets.tolist()
    assert ((rows.word_index >= 0) == (expected.word_ids >= 0)).all()


def test_empty_texts_are_left_out_and_counted():
    rows = rows_of(["", TEXT, "  ", TEXT])
    assert (rows.num_rows, rows.num_texts, rows.num_empty) == (2, 4, 2)
    assert row(rows, 0) == row(rows, 1)


def test_unknown_tokens_are_counted_in_the_rows():
    unknown = tiny_files().tokenizer.special.unknown_id
    rows = rows_of(["\u2603 we \u2603", "we", "\u2603"])
    assert rows.num_unknown == contents(rows).count(unknown) == 3
    assert rows_of([TEXT]).num_unknown == 0
    assert rows_of(["we " + "\u2603 " * 9], settings=RowSettings("truncate"), max_length=6).num_unknown == 3


def test_special_tokens_in_a_text_are_plain_text():
    special = tiny_files().tokenizer.special
    rows = rows_of(["a [MASK] b"])
    assert special.mask_id not in rows.input_ids
    assert not special.all_ids & set(contents(rows))


def test_words_are_told_apart_also_in_blocks():
    """Two texts of one word each are two words."""
    rows = rows_of(["people", "people"], settings=RowSettings(block_tokens=64))
    assert rows.num_rows == 1
    words = rows.word_index[rows.word_index >= 0]
    assert len(set(words.tolist())) == 2
    assert words.tolist() == sorted(words.tolist())


@given(st.integers(3, 64), st.lists(st.sampled_from([*LINES[:6], "", "we", TEXT * 5]), min_size=1))
def test_blocks_hold_every_token_once_in_order(block_tokens, texts):
    if not any(texts):
        return
    rows = rows_of(texts, settings=RowSettings(block_tokens=block_tokens))
    lengths = np.diff(rows.offsets)
    assert contents(rows) == contents(rows_of(texts, settings=RowSettings("split")))
    assert (lengths[:-1] == block_tokens).all()
    assert 3 <= lengths[-1] <= block_tokens


@given(st.integers(3, 40), st.integers(1, 12))
def test_split_texts_hold_every_token_once_in_nearly_equal_rows(max_length, times):
    text = TEXT * times
    whole = rows_of([text], settings=RowSettings("split"), max_length=10_000)
    rows = rows_of([text], settings=RowSettings("split"), max_length=max_length)
    lengths = np.diff(rows.offsets)
    assert contents(rows) == contents(whole)
    assert lengths.max() <= max_length
    assert lengths.max() - lengths.min() <= 1
    assert rows.num_rows == -(-whole.num_tokens // (max_length - 2))


def test_truncated_texts_keep_their_beginning_and_their_special_tokens():
    whole, cut = rows_of([TEXT]), rows_of([TEXT], settings=RowSettings("truncate"), max_length=6)
    assert row(cut, 0) == [*row(whole, 0)[:5], row(whole, 0)[-1]]


def test_an_overlong_text_is_refused_with_its_place():
    with pytest.raises(
        TextTooLongError, match=r"^a.txt, line 2: \d+ tokens, but a row takes 62 .*--overlong"
    ):
        rows_of([TEXT, TEXT * 20])


def test_one_word_of_many_tokens_cannot_be_masked_whole():
    texts = ["xq" * 100]
    rows = rows_of(texts, "roberta", RowSettings("split"))
    assert rows.num_tokens > 64
    with pytest.raises(
        InputError, match=r"a.txt, line 1: the tokenizer takes all \d+ tokens .* for one word"
    ):
        rows_of(texts, "roberta", RowSettings("split"), whole_word=True)


@pytest.mark.parametrize("texts", [[], [""], ["", "   "]])
def test_no_text_at_all_is_refused(texts):
    with pytest.raises(InputError, match=f"a.txt: no text: {len(texts)} lines"):
        rows_of(texts)


@pytest.mark.parametrize("block_tokens", [2, 65])
def test_blocks_that_do_not_fit_the_model_are_refused(block_tokens):
    with pytest.raises(SettingsError, match=rf"rows of {block_tokens} tokens: expected 3 .* to 64"):
        rows_of([TEXT], settings=RowSettings(block_tokens=block_tokens))


def test_a_record_that_cannot_be_read_is_refused_with_its_place(tmp_path):
    path = tmp_path / "bad.txt"
    path.write_bytes(b"good\nbad \xff\n")
    records = ((str(path), record) for record in read_records(path))
    with pytest.raises(InputError, match=r"bad.txt, line 2: invalid UTF-8"):
        training_rows(records, tiny_files().tokenizer, 64, RowSettings(), where="x")


def test_proteins_are_prepared_as_for_scoring():
    assert row(rows_of(["acd ef*"], "esm2"), 0) == row(rows_of(["ACDEF"], "esm2"), 0)


def test_the_checksum_is_of_tokens_and_rows():
    one, two = rows_of([TEXT, "we"]), rows_of(["we", TEXT])
    assert one.sha256() == rows_of([TEXT, "", "we"]).sha256()
    assert one.sha256() != two.sha256()
    assert one.sha256() != rows_of([TEXT, "we"], settings=RowSettings(block_tokens=64)).sha256()


def test_many_records_come_in_windows():
    texts = (LINES * 8)[:1500]
    records = (("m", InputRecord(i, t)) for i, t in enumerate(texts, 1))
    rows = training_rows(records, tiny_files().tokenizer, 64, RowSettings(), where="m")
    again = rows_of(LINES)
    assert rows.num_rows == 1500
    assert row(rows, 1499) == row(again, 1499 % len(LINES))
    words = rows.word_index[rows.word_index >= 0]
    assert (np.diff(words) >= 0).all()
