"""Every input format, output format and unit of `mlmfast score`: the records, their keys and their order."""

from __future__ import annotations

import csv
import gzip
import io
import json
import unicodedata

import pytest
from command_line import BERT, MODELS, lines, read_jsonl

TEXTS = (
    "My heart is hopeful.",
    "",
    "Café naïve résumé, ÉCOLE",
    'a\ttab and "quotes", too',
    "日本語と English の",
    "x",
    "  two  spaces  ",
    "My heart is hopeful.",
)
KEYS = ["text", "score", "num_tokens", "num_unknown", "pppl", "pll", "masking"]


def table(delimiter: str) -> bytes:
    rows = io.StringIO()
    writer = csv.writer(rows, delimiter=delimiter)
    writer.writerows([("id", "sentence"), *((f"t{k}", text) for k, text in enumerate(TEXTS))])
    return rows.getvalue().encode("utf-8")


INPUTS = {
    "text": lines(*TEXTS),
    "jsonl": lines(*(json.dumps({"id": f"t{k}", "sentence": text}) for k, text in enumerate(TEXTS))),
    "csv": table(","),
    "tsv": table("\t"),
}


@pytest.fixture(scope="module")
def by_token(mlmfast_command):
    """The records of TEXTS with their tokens."""
    return mlmfast_command.score("--per", "token", "--quiet", stdin=lines(*TEXTS)).records


@pytest.mark.parametrize("source", ["file", "gzip file", "standard input"])
@pytest.mark.parametrize("input_format", INPUTS)
def test_every_input_gives_the_same_records(mlmfast_command, by_token, tmp_path, input_format, source):
    content = INPUTS[input_format]
    path = tmp_path / ("in.gz" if source == "gzip file" else "in")
    path.write_bytes(gzip.compress(content) if source == "gzip file" else content)
    options = ["--input-format", input_format]
    if input_format != "text":
        options += ["--field", "sentence"]
    if source == "standard input":
        run = mlmfast_command.score("-", *options, stdin=content)
    else:
        run = mlmfast_command.score(path, *options)
    assert run.status == 0, run.err
    assert [r["text"] for r in run.records] == list(TEXTS)
    assert [r["score"] for r in run.records] == pytest.approx([r["score"] for r in by_token], abs=1e-4)
    expected_ids = [None if input_format == "text" else f"t{k}" for k in range(len(TEXTS))]
    assert [r.get("id") for r in run.records] == expected_ids


def test_fasta(mlmfast_command):
    content = b">first some protein\nMKTA\nYIak\n\n>empty\n>third\nQW*\n"
    run = mlmfast_command.score(
        "--input-format", "fasta", "--per", "token", stdin=content, model=MODELS / "esm2"
    )
    assert run.status == 0, run.err
    first, empty, third = run.records
    assert [r["id"] for r in run.records] == ["first", "empty", "third"]
    assert (first["text"], first["num_tokens"], first["flags"]) == ("MKTAYIak", 8, ["changed:2"])
    assert (empty["text"], empty["score"], empty["flags"]) == ("", None, ["empty"])
    assert (third["text"], third["num_tokens"], third["flags"]) == ("QW*", 2, ["changed:1"])
    assert [t["token"] for t in first["tokens"]] == list("MKTAYIAK")


def test_text_records(mlmfast_command):
    run = mlmfast_command.score(stdin=lines(*TEXTS))
    for text, record in zip(TEXTS, run.records, strict=True):
        assert list(record) == (KEYS if text else [*KEYS, "flags"])
        assert record["text"] == text
        if text:
            assert record["score"] < 0
            assert record["pll"] == record["score"]
            assert record["pppl"] == pytest.approx(2.718281828 ** (-record["score"] / record["num_tokens"]))
    empty = run.records[1]
    assert (empty["score"], empty["pll"], empty["pppl"], empty["num_tokens"]) == (None, None, None, 0)
    assert empty["flags"] == ["empty"]
    assert run.records[4]["num_unknown"] > 0


def test_token_records(by_token):
    for text, record in zip(TEXTS, by_token, strict=True):
        assert [k for k in record if k != "flags"] == [*KEYS, "tokens"]
        tokens = record["tokens"]
        assert len(tokens) == record["num_tokens"]
        if tokens:
            assert sum(t["log_prob"] for t in tokens) == pytest.approx(record["score"], abs=1e-4)
        for token in tokens:
            assert list(token) == ["token", "log_prob", "start", "end"]
            assert token["log_prob"] < 0
            if token["token"] != "[UNK]":
                assert token["token"].removeprefix("##") == folded(text[token["start"] : token["end"]])
        covered = "".join(text[t["start"] : t["end"]] for t in tokens)
        assert covered == "".join(text.split())


def folded(text: str) -> str:
    """As the tiny model's tokenizer reads text: lower case without accents."""
    decomposed = unicodedata.normalize("NFD", text.lower())
    return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")


def test_byte_level_tokens_have_the_spans_of_their_characters(mlmfast_command):
    text = "é 日本 👩‍👩‍👧 x"
    run = mlmfast_command.score("--per", "token", stdin=lines(text), model=MODELS / "roberta")
    tokens = run.records[0]["tokens"]
    assert len(tokens) > len(text)
    for token in tokens:
        assert 0 <= token["start"] <= token["end"] <= len(text)
        # A token that is only a space has no character of its own.
        assert token["end"] - token["start"] == (0 if token["token"] == "Ġ" else 1)
    starts = [token["start"] for token in tokens if token["token"] != "Ġ"]
    assert sorted(set(starts)) == [k for k, c in enumerate(text) if c != " "]
    assert starts == sorted(starts)


def test_word_records(mlmfast_command, by_token):
    run = mlmfast_command.score("--per", "word", stdin=lines(*TEXTS))
    for text, record, with_tokens in zip(TEXTS, run.records, by_token, strict=True):
        assert [k for k in record if k != "flags"] == [*KEYS, "words"]
        assert [w["word"] for w in record["words"]] == text.split()
        for word in record["words"]:
            assert list(word) == ["word", "log_prob", "start", "end"]
            assert text[word["start"] : word["end"]] == word["word"]
            inside = [
                t["log_prob"]
                for t in with_tokens["tokens"]
                if word["start"] <= t["start"] and t["end"] <= word["end"]
            ]
            assert word["log_prob"] == pytest.approx(sum(inside), abs=1e-4)


@pytest.mark.parametrize("per", ["text", "word", "token"])
def test_tsv_says_what_jsonl_says(mlmfast_command, tmp_path, per):
    output = tmp_path / "scores.jsonl"
    options = ("--per", per)
    if per == "token":
        options += ("--rank", "--entropy", "--top-k", 2)
    assert mlmfast_command.score(*options, "--output", output, stdin=lines(*TEXTS)).status == 0
    run = mlmfast_command.score(*options, "--format", "tsv", stdin=lines(*TEXTS))
    assert run.status == 0, run.err
    expected = [
        (line, ",".join(record.get("flags", [])), unit)
        for line, record in enumerate(read_jsonl(output.read_bytes()), 1)
        for unit in ([record] if per == "text" else record[f"{per}s"] or [{}])
    ]
    assert len(run.rows) == len(expected)
    for row, (line, flags, unit) in zip(run.rows, expected, strict=True):
        assert (row["line"], row["flags"], row["error"], row["id"]) == (str(line), flags, "", "")
        for name in set(row) - {"line", "flags", "error", "id"}:
            assert cell(row[name], name) == unit.get(name), name
    assert (len(run.rows[0]) - 4) == {"text": 5, "word": 4, "token": 7}[per]


def cell(content: str, name: str) -> object:
    if name in ("text", "word", "token"):
        return content.replace("\\t", "\t") or ("" if name == "text" else None)
    return json.loads(content) if content else None


def test_many_lines_come_back_in_order(mlmfast_command, tmp_path):
    """More than one window of texts, lengths mixed, some twice."""
    texts = [f"{'word ' * (k % 7)}{k % 400}" for k in range(1_300)]
    path = tmp_path / "in.txt"
    path.write_bytes(lines(*texts))
    records = mlmfast_command.score(path, "--masking", "none").records
    assert [r["text"] for r in records] == texts
    scores: dict[str, float] = {}
    for record in records:
        assert record["score"] == pytest.approx(scores.setdefault(record["text"], record["score"]), abs=5e-5)


def test_the_command_line_gives_the_scores_of_the_library(by_token):
    import mlmfast

    with mlmfast.load(BERT, workers=1) as scorer:
        results = scorer.score(TEXTS)
    for record, result in zip(by_token, results, strict=True):
        assert record["num_tokens"] == result.num_tokens
        assert record["score"] == (None if result.score is None else pytest.approx(result.score, abs=5e-5))
        for token, expected in zip(record["tokens"], result.tokens, strict=True):
            assert (token["token"], token["start"], token["end"]) == (
                expected.token,
                expected.start,
                expected.end,
            )
            assert token["log_prob"] == pytest.approx(expected.log_prob, abs=5e-5)
