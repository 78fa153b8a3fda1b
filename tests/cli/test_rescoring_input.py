"""Inputs of `rescore`, `tune` and `eval` that lose or misplace something: refused, or said."""

from __future__ import annotations

import gzip
import os
import random
import threading

import pytest
from command_line import BERT, DATA, read_meta
from test_terminal import Terminal

SPEECH = DATA / "nbest" / "speech.json"
RESCORE = ("rescore", "--workers", 1, "--model", BERT)
ONE = ("--lm-weight", "0.5")
GAPS = "".join(
    f"{id} ||| {text} ||| F0= {total} ||| {total}\n"
    for id, text, total in [(1, "We", -2), (1, "the", -1), (2, "the", -1), (9, "We", -1), (20, "We", -1)]
)


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_pipe_needs_its_format(mlmfast_command, pipe):
    run = mlmfast_command.run(*RESCORE, pipe, *ONE)
    assert (run.status, run.out) == (2, b"")
    assert "the format of a stream or pipe is not guessed; name it with --format" in run.err


def test_a_pipe_is_read_once(mlmfast_command, pipe):
    """Also where a progress bar would like to know how much there is."""
    with Terminal() as terminal:
        running = mlmfast_command.start(*RESCORE, pipe, "--format", "mlm-scoring", *ONE, stderr=terminal.path)
        producer = threading.Thread(target=pipe.write_bytes, args=(SPEECH.read_bytes(),), daemon=True)
        producer.start()
        run = running.wait()
    producer.join()
    assert run.status == 0
    assert run.out == mlmfast_command.run(*RESCORE, SPEECH, *ONE).out != b""


def test_references_for_two_systems_are_no_pipe(mlmfast_command, pipe):
    run = mlmfast_command.run("eval", SPEECH, "--against", SPEECH, "--references", pipe)
    assert run.status == 2
    assert "references are read for both systems, so not from a pipe" in run.err


def test_a_gzip_file_that_is_cut(mlmfast_command, tmp_path):
    source = tmp_path / "lists.json.gz"
    source.write_bytes(gzip.compress(random.Random(0).randbytes(20_000).hex().encode())[:-100])
    run = mlmfast_command.run(*RESCORE, source, *ONE)
    assert (run.status, run.out) == (1, b"")
    assert run.err.startswith(f"mlmfast: error: cannot read {source}: ")
    assert run.err.endswith("; check that the file is whole\n")


def test_flags_are_said_and_counted(mlmfast_command, tmp_path):
    source, output = tmp_path / "lists.nbest", tmp_path / "out"
    source.write_text(GAPS)
    run = mlmfast_command.run(*RESCORE, source, *ONE, "--output", output)
    assert run.status == 0, run.err
    assert "3 lists come after missing ids: '1' (1 missing), '9' (6 missing), '20' (10 missing)\n" in run.err
    assert "1 lists are not in the order of the totals" in run.err
    assert read_meta(output)["summary"]["flags"] == {"gap": 3, "unordered": 1}
    whole = mlmfast_command.run(*RESCORE, SPEECH, *ONE)
    assert (whole.status, whole.err.count("\n")) == (0, 1)


def test_references_without_a_list_are_said(mlmfast_command, tmp_path):
    source, references = tmp_path / "hyp", tmp_path / "ref"
    source.write_text("b the people\n")
    references.write_text("".join(f"{id} the people\n" for id in "abcdef"))
    run = mlmfast_command.run("eval", source, "--format", "keyed", "--references", references)
    assert run.status == 0
    assert "5 references have no list and count as empty: 'a', 'c', 'd', ...\n" in run.err


def test_other_lines_than_references(mlmfast_command, tmp_path):
    source, references = tmp_path / "hyp", tmp_path / "ref"
    source.write_text("a\nb\nc\n")
    references.write_text("a\nb\nb2\nc\n")
    run = mlmfast_command.run("eval", source, "--format", "text", "--references", references)
    assert (run.status, run.out) == (1, b"")
    assert "are for 3 reference lines, but 4 came" in run.err


@pytest.mark.parametrize("command", ["rescore", "tune"])
def test_other_numbers_of_references_are_found_before_anything_is_scored(mlmfast_command, tmp_path, command):
    source, references, output = (tmp_path / name for name in ("lists.nbest", "ref", "out"))
    source.write_text("0 ||| We ||| F0= -1 ||| -1\n1 ||| the ||| F0= -2 ||| -2\n")
    references.write_text("We\nthe\npeople\n")
    options = ONE if command == "rescore" else ("--metric", "wer")
    options = (*options, "--references", references, "--output", output)
    run = mlmfast_command.run(command, "--model", tmp_path / "no_model", source, *options)
    assert (run.status, run.out) == (1, b"")
    assert "are for 2 reference lines, but 3 came" in run.err
    assert not output.exists()


@pytest.mark.parametrize("command", ["score", "rescore", "tune"])
def test_no_output_is_compressed(mlmfast_command, tmp_path, command):
    output = tmp_path / "out.json.gz"
    options = {"score": (), "rescore": ONE, "tune": ("--metric", "wer")}[command]
    run = mlmfast_command.run(command, "--workers", 1, "--model", BERT, SPEECH, *options, "--output", output)
    assert (run.status, run.out) == (2, b"")
    assert "outputs are not compressed; name a file without .gz" in run.err
    assert not output.exists()


def test_what_is_left_out_is_counted(mlmfast_command, tmp_path):
    source, output = tmp_path / "lists.nbest", tmp_path / "out"
    source.write_text("0 ||| We ||| F0= -1 ||| -1\n0 ||| the ||| F0= -2 ||| ?\nno bars\n")
    run = mlmfast_command.run(*RESCORE, source, *ONE, "--on-error", "skip", "--output", output)
    assert run.status == 3
    assert "(0 empty, 0 skipped with an error, 2 left out as unreadable)" in run.err
    assert read_meta(output)["summary"]["num_unreadable"] == 2


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((*ONE, "--normalize", "gnmt:400"), "normalisation gnmt:400: expected an alpha from 0 to 10"),
        (("--lm-weight", "1e308"), "weight of 'mlm' is 1e+308: expected a finite number, at most 1e+09"),
        (("--lm-weight", "inf"), "weight of 'mlm' is inf: expected a finite number"),
        (("--lm-weight", "nan"), "weight of 'mlm' is nan: expected a finite number"),
        (("--weights", "w.json", "--formula", "mlm-scoring"), "--weights has all weights"),
        (("--model", "none"), "--model none is for no model at all; give it once"),
        ((*ONE, "--detok", "xx"), "no detokenisation for language 'xx'"),
    ],
)
def test_options_that_are_refused_at_once(mlmfast_command, tmp_path, options, reason):
    """Before a model is loaded, let alone a text scored: this one cannot be."""
    run = mlmfast_command.run("rescore", "--model", tmp_path / "no_model", SPEECH, *options)
    assert (run.status, run.out) == (2, b"")
    assert reason in run.err
    assert run.err.count("\n") == 1


def test_no_model_twice(mlmfast_command):
    run = mlmfast_command.run(
        "rescore", SPEECH, "--model", "none", "--model", "none", "--feature", "lm_score=1"
    )
    assert run.status == 2
    assert "--model none is for no model at all; give it once" in run.err
