"""What the options of `mlmfast score` change, and what they refuse."""

from __future__ import annotations

import hashlib
import math

import pytest
from command_line import BERT, MODELS, SENTENCES, lines, read_meta

TEXTS = ("My heart is hopeful.", "unbelievable countrymen", "x")
PLL_MASKINGS = ("original", "word_l2r", "whole_word")


def scores(run) -> list[float]:
    assert run.status == 0, run.err
    return [record["score"] for record in run.records]


@pytest.fixture(scope="module")
def plain(mlmfast_command):
    return mlmfast_command.score("--per", "token", stdin=lines(*TEXTS)).records


@pytest.mark.parametrize("masking", [*PLL_MASKINGS, "stride:3", "none"])
def test_masking(mlmfast_command, plain, masking):
    run = mlmfast_command.score("--masking", masking, stdin=lines(*TEXTS))
    assert run.status == 0, run.err
    assert [r["masking"] for r in run.records] == [masking] * len(TEXTS)
    assert all(("pll" in r) == (masking in PLL_MASKINGS) for r in run.records)
    same = [
        r["score"] == pytest.approx(p["score"], abs=1e-3) for r, p in zip(run.records, plain, strict=True)
    ]
    # One token leaves the maskings no room to differ, but for `none`, which masks nothing.
    assert same[:2] == [masking == "original"] * 2 or masking == "stride:3"
    assert same[2] == (masking != "none")


def test_causal_masking(mlmfast_command):
    run = mlmfast_command.score("--masking", "causal", stdin=lines(*TEXTS), model=MODELS / "gpt2")
    assert all(score < 0 for score in scores(run))
    assert all("pll" not in record for record in run.records)


def test_score_eos(mlmfast_command, plain):
    run = mlmfast_command.score("--score-eos", "--per", "token", stdin=lines(*TEXTS, ""))
    *records, empty = run.records
    for text, record, without in zip(TEXTS, records, plain, strict=True):
        *tokens, eos = record["tokens"]
        assert [t["token"] for t in tokens] == [t["token"] for t in without["tokens"]]
        assert (eos["token"], eos["start"], eos["end"]) == ("[SEP]", len(text), len(text))
        assert record["score"] == pytest.approx(without["score"] + eos["log_prob"], abs=1e-4)
    assert (empty["score"], empty["num_tokens"]) == (None, 0)


def test_rank_entropy_and_top_k(mlmfast_command, plain):
    run = mlmfast_command.score("--per", "token", "--rank", "--entropy", "--top-k", 320, stdin=lines(*TEXTS))
    for record, without in zip(run.records, plain, strict=True):
        for token, alone in zip(record["tokens"], without["tokens"], strict=True):
            assert list(token) == ["token", "log_prob", "start", "end", "rank", "entropy", "top"]
            assert token["log_prob"] == pytest.approx(alone["log_prob"], abs=5e-5)
            log_probs = [other["log_prob"] for other in token["top"]]
            assert log_probs == sorted(log_probs, reverse=True)
            assert token["top"][token["rank"]]["log_prob"] == pytest.approx(token["log_prob"], abs=1e-5)
            assert sum(map(math.exp, log_probs)) == pytest.approx(1, abs=1e-4)
            assert -sum(p * math.exp(p) for p in log_probs) == pytest.approx(token["entropy"], abs=1e-4)


def test_special_tokens_typed_in_a_text(mlmfast_command):
    text = "The [MASK] sat on [SEP] it."
    as_text, as_special = (
        mlmfast_command.score("--per", "token", *options, stdin=lines(text)).records[0]["tokens"]
        for options in ((), ("--parse-special",))
    )
    assert not {"[MASK]", "[SEP]"} & {t["token"] for t in as_text + as_special}
    assert "".join(text[t["start"] : t["end"]] for t in as_text) == "The[MASK]saton[SEP]it."
    assert "".join(text[t["start"] : t["end"]] for t in as_special) == "Thesatonit."


@pytest.mark.parametrize(
    "options", [("--max-batch-tokens", 1), ("--max-batch-tokens", 10**6), ("--workers", 2)], ids=str
)
def test_how_the_work_is_cut_changes_no_score(mlmfast_command, options):
    texts = SENTENCES[:12]
    expected = scores(mlmfast_command.score(stdin=lines(*texts)))
    assert scores(mlmfast_command.score(*options, stdin=lines(*texts))) == pytest.approx(expected, abs=5e-5)


def test_precision(mlmfast_command, plain, tmp_path):
    output = tmp_path / "out.jsonl"
    run = mlmfast_command.score("--precision", "bfloat16", "--output", output, stdin=lines(*TEXTS))
    assert run.status == 0, run.err
    assert read_meta(output)["settings"]["precision"] == "bfloat16"
    explicit = mlmfast_command.score(
        "--precision", "float32", "--engine", "torch", "--device", "cpu", stdin=lines(*TEXTS)
    )
    assert scores(explicit) == pytest.approx([r["score"] for r in plain], abs=5e-5)


def test_the_embedded_model_is_the_default(mlmfast_command, tmp_path):
    output = tmp_path / "out.jsonl"
    run = mlmfast_command.score("--output", output, stdin=lines("The cat sat on the mat."), model=None)
    assert run.status == 0, run.err
    settings = read_meta(output)["settings"]
    assert settings["model"] == "mlmfast-mini-en"
    assert len(settings["weights_sha256"]) == len(hashlib.sha256().hexdigest())


@pytest.mark.parametrize(
    ("options", "possible"),
    [
        (("--masking", "orignal"), ["'orignal'", "original", "word_l2r", "whole_word", "stride:K", "none"]),
        (("--masking", "stride:0"), ["'stride:0'", "stride:K"]),
        (("--masking", "causal"), ["masked model", "'original'"]),
        (("--engine", "tensorflow"), ["'tensorflow'", "auto", "torch"]),
        (("--precision", "float16"), ["'float16'", "float32", "bfloat16"]),
        (("--device", "abacus"), ["'abacus'", "cpu", "cuda"]),
        (("--per", "letter"), ["text", "word", "token"]),
        (("--format", "xml"), ["jsonl", "tsv"]),
        (("--input-format", "xml"), ["text", "jsonl", "csv", "tsv", "fasta"]),
        (("--overlong", "cut"), ["error", "truncate", "window"]),
        (("--on-error", "ignore"), ["raise", "skip"]),
        (("--workers", "0"), ["--workers", "1"]),
        (("--max-batch-tokens", "0"), ["--max-batch-tokens", "1"]),
        (("--top-k", "321", "--per", "token"), ["321", "0 to 320"]),
        (("--rank",), ["--per token"]),
        (("--field", "sentence"), ["'sentence'", "text input", "jsonl"]),
        (("--maskin", "none"), ["--masking"]),
        (("--resume",), ["--output"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_options(mlmfast_command, options, possible):
    run = mlmfast_command.score(*options, stdin=lines("x"))
    assert run.status == 2
    assert run.out == b""
    assert all(value in run.err for value in possible)
    assert "Traceback" not in run.err


@pytest.mark.parametrize("options", [("--masking", "orignal"), ("--top-k", 321)], ids=str)
def test_wrong_options_leave_an_earlier_output_alone(mlmfast_command, tmp_path, options):
    output = tmp_path / "out.jsonl"
    assert mlmfast_command.score("--output", output, stdin=lines(*TEXTS)).status == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert mlmfast_command.score("--output", output, *options, stdin=lines(*TEXTS)).status == 2
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_output_over_the_input_is_refused(mlmfast_command, tmp_path):
    path = tmp_path / "both.jsonl"
    assert mlmfast_command.score("--output", path, stdin=lines(*TEXTS)).status == 0
    before = path.read_bytes()
    run = mlmfast_command.score(path, "--input-format", "jsonl", "--output", path, "--masking", "none")
    assert run.status == 2
    assert f"{path} is the input, too" in run.err
    assert path.read_bytes() == before


def test_a_complete_output_can_be_an_input(mlmfast_command, plain, tmp_path):
    path = tmp_path / "first.jsonl"
    mlmfast_command.score("--output", path, stdin=lines(*TEXTS))
    again = mlmfast_command.score(path, "--input-format", "jsonl")
    assert scores(again) == pytest.approx([r["score"] for r in plain], abs=5e-5)


def test_a_revision_of_a_folder_is_refused(mlmfast_command):
    run = mlmfast_command.score("--revision", "v2", stdin=lines("x"))
    assert run.status == 1
    assert f"{BERT} is a local folder" in run.err
