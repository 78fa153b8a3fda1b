"""Input that cannot be scored, or that looks as if it could not: each has its one outcome."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import MAX_LENGTH, lines

GOOD = "My heart is hopeful."
LONG = "a " * (MAX_LENGTH - 1)
FITTING = "a " * (MAX_LENGTH - 2)


@dataclass(frozen=True)
class BadInput:
    """Three good texts and, after the first two, a bad one. line: its own; reason: parts of the message."""

    content: bytes
    line: int
    reason: tuple[str, ...]
    options: tuple[str, ...] = ()


def text_input(bad: bytes, *reason: str) -> BadInput:
    return BadInput(lines(GOOD, "x") + bad + b"\n" + lines("last"), 3, reason)


def jsonl_input(bad: str, *reason: str) -> BadInput:
    good, second, last = (json.dumps({"text": text}) for text in (GOOD, "x", "last"))
    return BadInput(lines(good, second, bad, last), 3, reason, ("--input-format", "jsonl"))


def csv_input(bad: bytes, line: int, *reason: str) -> BadInput:
    content = lines("text,n", GOOD + ",1", '"x",2') + bad + b"\n" + lines("last,4")
    return BadInput(content, line, reason, ("--input-format", "csv"))


BAD_INPUTS = {
    "over-long line": text_input(LONG.encode(), "65 tokens", "takes 64", "--overlong"),
    "100,000 words": text_input(b"word " * 100_000, "tokens, but the model takes 64", "--overlong"),
    "invalid UTF-8": text_input(b"caf\xe9", "invalid UTF-8", "0xe9", "column 4", "save the input as UTF-8"),
    "UTF-16": text_input("ok".encode("utf-16"), "invalid UTF-8", "0xff"),
    "NUL byte": text_input(b"one\0two", "NUL byte at column 4", "save the input as UTF-8"),
    "missing field": jsonl_input('{"txt": "hello"}', "no field 'text'", "'txt'", "name the field"),
    "field of another kind": jsonl_input('{"text": null}', "is a null", "string was expected"),
    "not an object": jsonl_input('["hello"]', "a JSON array", "object was expected"),
    "not JSON": jsonl_input('{"text": hello}', "not JSON", "column", "one object per line"),
    "blank jsonl line": jsonl_input("", "blank line", "remove the line"),
    "lone surrogate": jsonl_input('{"text": "half \\ud83d"}', "lone surrogate"),
    "too few columns": csv_input(b"alone", 4, "1 columns", "header has 2"),
    "invalid UTF-8 in a column": csv_input(b"caf\xe9,3", 4, "invalid UTF-8", "0xe9"),
    "NUL byte in a column": csv_input(b"one\0two,3", 4, "field 1: NUL byte at column 4"),
}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_raise_ends_at_the_bad_record_and_keeps_what_came_before(mlmfast_command, tmp_path, name):
    bad = BAD_INPUTS[name]
    output = tmp_path / "out.jsonl"
    to_file = mlmfast_command.score(*bad.options, "--output", output, stdin=bad.content)
    to_stdout = mlmfast_command.score(*bad.options, stdin=bad.content)
    assert to_file.status == to_stdout.status == 1
    assert to_file.err == to_stdout.err
    assert to_file.err.startswith(f"mlmfast: error: line {bad.line}: ")
    assert to_file.err.count("\n") == 1
    assert all(part in to_file.err for part in bad.reason)
    assert [r["text"] for r in to_stdout.records] == [GOOD, "x"]
    assert output.read_bytes() == to_stdout.out


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_skip_puts_the_error_in_its_place(mlmfast_command, name):
    bad = BAD_INPUTS[name]
    run = mlmfast_command.score(*bad.options, "--on-error", "skip", "--per", "token", stdin=bad.content)
    assert run.status == 3
    assert "4 texts (0 empty, 1 skipped with an error)" in run.err
    first, second, skipped, last = run.records
    assert [first["text"], second["text"], last["text"]] == [GOOD, "x", "last"]
    assert all(record["score"] < 0 and "error" not in record for record in (first, second, last))
    assert [skipped[k] for k in ("score", "pll", "pppl", "num_tokens", "num_unknown")] == [None] * 5
    assert skipped["tokens"] == []
    assert all(part in skipped["error"] for part in bad.reason)


def test_skip_in_tsv(mlmfast_command):
    run = mlmfast_command.score(
        "--on-error", "skip", "--format", "tsv", stdin=BAD_INPUTS["invalid UTF-8"].content
    )
    assert run.status == 3
    skipped = run.rows[2]
    assert (skipped["line"], skipped["score"], skipped["num_tokens"], skipped["pppl"]) == ("3", "", "", "")
    assert "invalid UTF-8" in skipped["error"]


def test_every_record_bad(mlmfast_command):
    run = mlmfast_command.score("--on-error", "skip", stdin=b"\xff\n" * 600)
    assert run.status == 3
    assert len(run.records) == 600
    assert "600 skipped" in run.err
    assert "no PPPL" in run.err


def test_a_bad_record_beyond_the_first_window(mlmfast_command):
    texts = [f"a {k}" for k in range(700)]
    content = lines(*texts[:650]) + b"\xff\n" + lines(*texts[650:])
    raised = mlmfast_command.score("--masking", "none", stdin=content)
    assert raised.status == 1
    assert "line 651: invalid UTF-8" in raised.err
    assert [r["text"] for r in raised.records] == texts[:650]
    skipped = mlmfast_command.score("--masking", "none", "--on-error", "skip", stdin=content)
    assert skipped.status == 3
    assert [r["text"] for r in skipped.records] == [*texts[:650], None, *texts[650:]]


def test_an_input_that_breaks_off_keeps_what_came_before(mlmfast_command, tmp_path):
    noise = random.Random(0)
    texts = [f"{noise.getrandbits(64):x}" for _ in range(2_000)]
    path = tmp_path / "in.gz"
    path.write_bytes(gzip.compress(lines(*texts))[:8_000])
    run = mlmfast_command.score(path, "--masking", "none")
    assert run.status == 1
    place = int(run.err.removeprefix("mlmfast: error: line ").split(":")[0])
    assert "breaks off" in run.err
    assert [r["text"] for r in run.records] == texts[: place - 1]


def test_line_numbers_are_physical_lines(mlmfast_command):
    content = lines("text,n", '"two', 'lines",1', "", "x,3")
    run = mlmfast_command.score("--input-format", "csv", stdin=content)
    assert run.status == 1
    assert "error: line 4: " in run.err


SOUND = {
    "empty line": (b"x\n\ny\n", ["x", "", "y"]),
    "only an empty line": (b"\n", [""]),
    "white space": (b" \t \n", [" \t "]),
    "one token": (b"x\n", ["x"]),
    "CRLF": (b"one\r\ntwo\r\n", ["one", "two"]),
    "byte order mark": (b"\xef\xbb\xbfone\ntwo\n", ["one", "two"]),
    "no final newline": (b"one\ntwo", ["one", "two"]),
    "line separators inside": ("a\u2028b\x85c\x0cd\n".encode(), ["a\u2028b\x85c\x0cd"]),
    "typed special tokens": (b"[MASK] [SEP] [CLS] [PAD] [UNK]\n", ["[MASK] [SEP] [CLS] [PAD] [UNK]"]),
    "longest that fits": (FITTING.encode() + b"\n", [FITTING]),
    "empty input": (b"", []),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_input(mlmfast_command, name):
    content, texts = SOUND[name]
    run = mlmfast_command.score("--per", "token", stdin=content)
    assert run.status == 0, run.err
    assert [r["text"] for r in run.records] == texts
    assert f"{len(texts)} text{'' if len(texts) == 1 else 's'} (" in run.err
    for text, record in zip(texts, run.records, strict=True):
        blank = not text.strip()
        assert record.get("flags", []) == (["empty"] if blank else [])
        assert (record["score"] is None) == (record["num_tokens"] == 0) == blank
        assert all(text[t["start"] : t["end"]] for t in record["tokens"])


def test_line_ends_and_marks_change_no_score(mlmfast_command):
    plain, odd = (
        [r["score"] for r in mlmfast_command.score(stdin=content).records]
        for content in (b"one\ntwo\n", b"\xef\xbb\xbfone\r\ntwo")
    )
    assert odd == pytest.approx(plain, abs=5e-5)


def test_typed_special_tokens_are_text(mlmfast_command):
    text = "the [MASK]"
    record = mlmfast_command.score("--per", "token", stdin=lines(text)).records[0]
    pieces = [text[t["start"] : t["end"]] for t in record["tokens"]]
    assert pieces[:2] == ["the", "["]
    assert "".join(pieces) == "the[MASK]"
    assert record["num_tokens"] == len(pieces) > 3


def test_an_empty_table_is_an_error_and_an_empty_tsv_output_has_its_header(mlmfast_command):
    table = mlmfast_command.score("--input-format", "csv")
    assert table.status == 1
    assert "needs a header row with a column 'text'" in table.err
    nothing = mlmfast_command.score("--format", "tsv")
    assert nothing.status == 0
    assert nothing.out.decode().split("\t")[:2] == ["line", "score"]
    assert nothing.out.count(b"\n") == 1


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_missing_column_is_an_error_of_the_whole_table(mlmfast_command, on_error):
    run = mlmfast_command.score(
        "--input-format", "csv", "--field", "sentence", "--on-error", on_error, stdin=b"id,text\n1,x\n"
    )
    assert run.status == 1
    assert run.out == b""
    assert "no column 'sentence'" in run.err
    assert "'id', 'text'" in run.err


def test_overlong_truncate(mlmfast_command):
    run = mlmfast_command.score("--overlong", "truncate", stdin=lines(LONG, "x", "word " * 100_000))
    assert run.status == 0, run.err
    long, short, longest = run.records
    assert [r["num_tokens"] for r in (long, short, longest)] == [MAX_LENGTH - 2, 1, MAX_LENGTH - 2]
    assert [r.get("flags") for r in (long, short, longest)] == [["truncated"], None, ["truncated"]]
    fitting = mlmfast_command.score(stdin=lines(FITTING)).records[0]
    assert long["score"] == pytest.approx(fitting["score"], abs=1e-4)


def test_overlong_window(mlmfast_command):
    """100,000 words; where they repeat, so do their windows, which are computed once."""
    run = mlmfast_command.score("--overlong", "window", "--per", "word", stdin=lines("x", "a " * 100_000))
    assert run.status == 0, run.err
    short, long = run.records
    assert "flags" not in short
    assert (long["flags"], long["num_tokens"], len(long["words"])) == (["windowed"], 100_000, 100_000)
    assert sum(w["log_prob"] for w in long["words"]) == pytest.approx(long["score"], rel=1e-6)
    assert all(w["log_prob"] < 0 for w in long["words"])


def test_overlong_window_of_words_that_do_not_repeat(mlmfast_command):
    text = " ".join(f"{k}" for k in range(20_000))
    run = mlmfast_command.score("--overlong", "window", "--masking", "none", stdin=lines(text))
    assert run.status == 0, run.err
    (record,) = run.records
    assert (record["flags"], record["text"]) == (["windowed"], text)
    assert record["num_tokens"] >= 20_000


def test_input_that_cannot_be_opened(mlmfast_command, tmp_path):
    output = tmp_path / "out.jsonl"
    damaged = tmp_path / "in.gz"
    damaged.write_bytes(b"plain text")
    for source, reason in (
        (tmp_path / "missing.txt", "No such file"),
        (tmp_path, "Is a directory"),
        (damaged, "as gzip"),
    ):
        run = mlmfast_command.score(source, "--output", output)
        assert run.status == 1
        assert f"cannot read {source}" in run.err
        assert reason in run.err
        assert run.err.count("\n") == 1
        assert not output.exists()


def test_output_that_cannot_be_written(mlmfast_command, tmp_path):
    for output, reason in (
        (tmp_path / "missing" / "out.jsonl", "check the folder"),
        (tmp_path, "not a regular file"),
        ("/dev/full", "not a regular file"),
    ):
        run = mlmfast_command.score("--output", output, stdin=lines("x"))
        assert run.status == 1
        assert str(output) in run.err
        assert reason in run.err
        assert run.err.count("\n") == 1


def test_standard_output_on_a_full_disk(mlmfast_command):
    run = mlmfast_command.score(stdin=lines("x"), stdout=Path("/dev/full"))
    assert run.status == 1
    assert run.err.startswith("mlmfast: error: ")
    assert "No space left" in run.err
