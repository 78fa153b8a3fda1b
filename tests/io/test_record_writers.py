"""Writers: what a result looks like in jsonl and tsv."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlmfast.io import header_line, record_lines
from mlmfast.results import TextScore, TokenColumns

NASTY = 'tab\t newline\n return\r back\\slash \\t \0 \x1b \x7f \x85 \u2028 \u2029 " é 😀'


def columns(log_probs, spans, vocabulary=("the", "cat", "sat"), **more) -> TokenColumns:
    return TokenColumns(
        ids=np.arange(len(log_probs), dtype=np.int32),
        log_probs=np.array(log_probs, dtype=np.float32),
        char_spans=np.array(spans, dtype=np.int32).reshape(-1, 2),
        vocabulary=vocabulary,
        **more,
    )


def result(text="the cat", masking="original", **fields) -> TextScore:
    c = columns([-0.1, -2.7], [(0, 3), (4, 7)])
    defaults = {"score": -2.8, "num_tokens": 2, "num_unknown": 1, "columns": c}
    return TextScore(text, masking, **defaults | fields)


def failed() -> TextScore:
    return TextScore(None, "original", None, error="line 3: invalid UTF-8")


def as_json(result, *, per="text", id=None):
    lines = record_lines(3, id, result, per=per, format="jsonl")
    assert lines.splitlines(keepends=True) == [lines]
    lines.encode()
    return json.loads(lines, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


def as_rows(result, *, per="text", id=None):
    """The tsv rows as dictionaries from column to raw cell."""
    header = header_line(per=per, format="tsv").rstrip("\n").split("\t")
    lines = record_lines(3, id, result, per=per, format="tsv")
    assert lines.endswith("\n")
    return [dict(zip(header, line.split("\t"), strict=True)) for line in lines[:-1].split("\n")]


def unescape(cell: str) -> str:
    """The inverse of the tsv escapes, read one character after the other."""
    out, characters = [], iter(cell)
    for character in characters:
        if character == "\\":
            out.append({"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}[next(characters)])
        else:
            out.append(character)
    return "".join(out)


def with_pairs_joined(text: str) -> str:
    """`text` with a high and a low surrogate side by side as the one character that JSON takes them for."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


class TestJsonl:
    def test_keys_of_a_text(self):
        assert as_json(result()) == {
            "text": "the cat",
            "score": -2.8,
            "num_tokens": 2,
            "num_unknown": 1,
            "pppl": math.exp(1.4),
            "pll": -2.8,
            "masking": "original",
        }

    def test_optional_keys(self):
        record = as_json(result(flags=("truncated", "changed:2")), id="x")
        assert record["id"] == "x"
        assert record["flags"] == ["truncated", "changed:2"]
        assert not {"id", "flags", "error", "tokens", "words"} & as_json(result()).keys()

    @pytest.mark.parametrize(
        ("masking", "is_pll"),
        [
            ("original", True),
            ("word_l2r", True),
            ("whole_word", True),
            ("none", False),
            ("student", False),
            ("stride:4", False),
            ("causal", False),
        ],
    )
    def test_pll_only_where_the_score_is_one(self, masking, is_pll):
        assert ("pll" in as_json(result(masking=masking))) == is_pll

    def test_tokens(self):
        assert as_json(result(), per="token")["tokens"] == [
            {"token": "the", "log_prob": -0.1, "start": 0, "end": 3},
            {"token": "cat", "log_prob": -2.7, "start": 4, "end": 7},
        ]

    def test_token_details(self):
        c = columns(
            [-0.1],
            [(0, 3)],
            ranks=np.array([4], dtype=np.int32),
            entropies=np.array([0.3], dtype=np.float32),
            top_ids=np.array([[2, 0]], dtype=np.int32),
            top_log_probs=np.array([[-0.7, -np.inf]], dtype=np.float32),
        )
        (token,) = as_json(result(columns=c), per="token")["tokens"]
        assert token["rank"] == 4
        assert token["entropy"] == 0.3
        assert token["top"] == [{"token": "sat", "log_prob": -0.7}, {"token": "the", "log_prob": None}]
        (row,) = as_rows(result(columns=c), per="token")
        assert (row["rank"], row["entropy"], json.loads(row["top"])) == ("4", "0.3", token["top"])

    def test_words(self):
        c = columns([-1.5, -0.25], [(0, 3), (3, 7)])
        assert as_json(result("the cat ...", columns=c), per="word")["words"] == [
            {"word": "the", "log_prob": -1.5, "start": 0, "end": 3},
            {"word": "cat", "log_prob": -0.25, "start": 4, "end": 7},
            {"word": "...", "log_prob": None, "start": 8, "end": 11},
        ]

    def test_empty_and_failed_texts(self):
        empty = as_json(TextScore("", "original", None, flags=("empty",)), per="token")
        assert (empty["score"], empty["pppl"], empty["pll"], empty["num_tokens"]) == (None, None, None, 0)
        assert (empty["flags"], empty["tokens"]) == (["empty"], [])
        bad = as_json(failed(), per="word")
        assert bad["error"] == "line 3: invalid UTF-8"
        assert bad["words"] == []
        for key in ("text", "score", "pppl", "pll", "num_tokens", "num_unknown"):
            assert bad[key] is None

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_nothing_that_is_not_finite(self, value):
        c = columns([value], [(0, 3)])
        record = as_json(result(score=value, columns=c), per="token")
        assert (record["score"], record["pll"], record["tokens"][0]["log_prob"]) == (None, None, None)
        assert as_json(result(columns=c), per="word")["words"][0]["log_prob"] is None

    def test_pppl_that_overflows(self):
        assert as_json(result(score=-1e6))["pppl"] is None
        assert as_rows(result(score=-1e6))[0]["pppl"] == ""

    def test_characters_are_readable_but_stay_on_one_line(self):
        assert "é 😀" in record_lines(1, None, result("é 😀"), per="text", format="jsonl")
        assert as_json(result(NASTY), id=NASTY)["text"] == NASTY
        assert as_json(result("half \ud800 a character"))["text"] == "half \ud800 a character"

    @given(
        st.text(st.characters(exclude_categories=())),
        st.none() | st.text(),
        st.none() | st.floats(),
        st.lists(st.text(), max_size=3),
    )
    def test_round_trip(self, text, id, score, flags):
        record = as_json(result(text, score=score, flags=tuple(flags), masking="none"), id=id)
        assert record["text"] == with_pairs_joined(text)
        assert record.get("id") == id
        assert record.get("flags", []) == flags
        assert record["score"] == (score if score is not None and math.isfinite(score) else None)

    @given(st.floats(width=32, allow_nan=False, allow_infinity=False))
    def test_log_probs_give_the_float32_back_in_few_digits(self, value):
        written = as_json(result(columns=columns([value], [(0, 3)])), per="token")["tokens"][0]["log_prob"]
        assert np.float32(written) == np.float32(value)
        assert len(repr(written).strip("-0.").replace(".", "").split("e")[0].strip("0")) <= 9


class TestTsv:
    def test_text_row(self):
        (row,) = as_rows(result(flags=("truncated", "windowed")), id="x\ty")
        assert " ".join(row) == "line score num_tokens num_unknown pppl flags error id text"
        assert list(row.values()) == [
            "3", "-2.8", "2", "1", repr(math.exp(1.4)), "truncated,windowed", "", "x\\ty", "the cat",
        ]  # fmt: skip

    def test_token_and_word_rows(self):
        rows = as_rows(result(flags=("windowed",)), per="token", id="x")
        assert [(r["line"], r["token"], r["log_prob"], r["start"], r["end"]) for r in rows] == [
            ("3", "the", "-0.1", "0", "3"),
            ("3", "cat", "-2.7", "4", "7"),
        ]
        assert {(r["rank"], r["entropy"], r["top"], r["flags"], r["id"]) for r in rows} == {
            ("", "", "", "windowed", "x")
        }
        rows = as_rows(result(), per="word")
        assert [(r["word"], float(r["log_prob"])) for r in rows] == [
            ("the", float(np.float32(-0.1))),
            ("cat", float(np.float32(-2.7))),
        ]

    @pytest.mark.parametrize("per", ["text", "word", "token"])
    def test_no_text_vanishes_and_nothing_missing_is_zero(self, per):
        (row,) = as_rows(failed(), per=per)
        assert {column for column, cell in row.items() if cell} == {"line", "error"}
        (row,) = as_rows(TextScore("", "original", None, flags=("empty",)), per=per)
        assert (row["line"], row["flags"], row["error"]) == ("3", "empty", "")

    def test_escapes(self):
        (row,) = as_rows(result("a\tb\nc\rd\\e\\t\u2028"))
        assert row["text"] == r"a\tb\nc\rd\\e\\t" + "\u2028"

    @given(st.text())
    def test_escapes_can_be_undone(self, text):
        (row,) = as_rows(result(text), id=text)
        assert unescape(row["text"]) == text
        assert unescape(row["id"]) == text

    @given(st.none() | st.floats())
    def test_numbers_in_full(self, score):
        (row,) = as_rows(result(score=score))
        if score is None or not math.isfinite(score):
            assert row["score"] == ""
        else:
            assert float(row["score"]) == score

    def test_numpy_numbers_read_as_numbers(self):
        assert as_rows(result(score=np.float64(-2.5)))[0]["score"] == "-2.5"
        assert as_json(result(score=np.float64(-2.5)))["score"] == -2.5

    def test_header(self):
        assert header_line(per="text", format="jsonl") == ""
        for per in ("text", "word", "token"):
            assert header_line(per=per, format="tsv").startswith("line\t")
