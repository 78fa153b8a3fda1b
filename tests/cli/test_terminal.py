"""What `mlmfast` says and where, how it ends, and how it lives with pipes and long inputs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import BERT, ENVIRONMENT, SENTENCES, Terminal, lines, read_jsonl
from waiting import wait_until

SCRIPT = Path(sys.executable).with_name("mlmfast")


def test_summary(mlmfast_command):
    texts = ["My heart is hopeful.", "", "My heart is hopeful.", "日本", "a " * 100]
    run = mlmfast_command.score("--on-error", "skip", stdin=lines(*texts))
    assert run.status == 3
    assert run.err.count("\n") == 1
    records = run.records
    num_tokens = sum(r["num_tokens"] or 0 for r in records)
    num_unknown = sum(r["num_unknown"] or 0 for r in records)
    shared = records[0]["num_tokens"]
    assert run.err.startswith(
        f"mlmfast: 5 texts (1 empty, 1 skipped with an error), {num_tokens} tokens ({num_unknown} unknown), "
        f"{num_tokens - shared} rows computed ({shared} shared), PPPL "
    )
    pppl, per_word = map(float, re.search(r"PPPL ([\d.]+) \(per word ([\d.]+)\)", run.err).groups())
    score = sum(r["score"] or 0 for r in records)
    assert pppl == pytest.approx(2.718281828459045 ** (-score / num_tokens), rel=1e-4)
    num_words = sum(len(text.split()) for text in texts[:4])
    assert per_word == pytest.approx(2.718281828459045 ** (-score / num_words), rel=1e-4)
    assert re.search(r", [\d.]+ s \([\d,]+ tokens/s\)$", run.err.rstrip())


def test_summary_of_tokens_without_words(mlmfast_command):
    """A byte-level tokenizer makes tokens of white space; there is no word to divide by."""
    run = mlmfast_command.score(stdin=lines("  "), model=BERT.with_name("roberta"))
    assert run.status == 0, run.err
    assert run.records[0]["num_tokens"] == 2
    assert "PPPL " in run.err
    assert "per word" not in run.err


def test_quiet(mlmfast_command, tmp_path):
    assert mlmfast_command.score("--quiet", stdin=lines("x")).err == ""
    output = tmp_path / "out.jsonl"
    for options in ((), ("--resume",)):
        run = mlmfast_command.score("--quiet", "--output", output, *options, stdin=lines("x"))
        assert (run.status, run.out, run.err) == (0, b"", "")
    assert mlmfast_command.score("--quiet", stdin=b"\xff\n").err.startswith("mlmfast: error: line 1")


def test_progress_bar_on_a_terminal(mlmfast_command, tmp_path):
    source = tmp_path / "in.txt"
    source.write_bytes(lines(*SENTENCES[:60]))
    with Terminal() as terminal:
        run = mlmfast_command.score(source, stderr=terminal.path)
    assert run.status == 0
    assert len(run.records) == 60
    assert "scoring" in terminal.shown
    assert re.search(r"\b\d+/60\b", terminal.shown)
    assert re.search(r"[\d,]+ tokens/s", terminal.shown)
    assert re.search(r"\d:\d\d:\d\d", terminal.shown)
    assert "mlmfast: 60 texts" in terminal.shown


def test_progress_bar_of_an_input_of_unknown_length(mlmfast_command):
    with Terminal() as terminal:
        run = mlmfast_command.score("-", stdin=lines(*SENTENCES[:20]), stderr=terminal.path)
    assert run.status == 0
    assert "20/?" in terminal.shown


def test_no_progress_bar_when_quiet_or_not_on_a_terminal(mlmfast_command):
    with Terminal() as terminal:
        run = mlmfast_command.score("--quiet", stdin=lines(*SENTENCES[:5]), stderr=terminal.path)
    assert run.status == 0
    assert terminal.shown == ""
    assert "scoring" not in mlmfast_command.score(stdin=lines(*SENTENCES[:5])).err


def test_a_reader_that_leaves_early(tmp_path):
    """`| head -n 1` through a real shell: no traceback, not even at the interpreter's end."""
    source = tmp_path / "in.txt"
    source.write_bytes(lines(*(f"a {k}" for k in range(3_000))))
    done = subprocess.run(
        f"{SCRIPT} score --quiet --workers 1 --masking none --model {BERT} {source} | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        env=os.environ | ENVIRONMENT,
        check=True,
    )
    assert '"text": "a 0"' in done.stdout
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_records_come_before_the_input_ends(mlmfast_command, tmp_path):
    """A slow producer gets the first window's records once two windows (of 512 texts) are in."""
    pipe, out = tmp_path / "pipe", tmp_path / "out"
    os.mkfifo(pipe)
    running = mlmfast_command.start_score("-", "--masking", "none", stdin=pipe, stdout=out)
    with pipe.open("wb", buffering=0) as producer:
        producer.write(lines(*(f"a {k}" for k in range(1_024))))
        wait_until(lambda: out.exists() and out.read_bytes().count(b"\n") >= 512)
        producer.write(lines("the end"))
    run = running.wait()
    assert run.status == 0, run.err
    records = read_jsonl(out.read_bytes())
    assert len(records) == 1_025
    assert records[-1]["text"] == "the end"


def test_memory_does_not_grow_with_the_input(mlmfast_command, tmp_path):
    peaks = []
    for count in (2_000, 20_000):
        source, output = tmp_path / f"{count}.txt", tmp_path / f"{count}.jsonl"
        source.write_bytes(lines(*(f"a {k}" for k in range(count))))
        run = mlmfast_command.score(source, "--masking", "none", "--output", output)
        assert run.status == 0, run.err
        assert output.read_bytes().count(b"\n") == count
        peaks.append(run.max_rss)
    assert peaks[1] - peaks[0] < 16 << 20


HELP = """
import sys
sys.argv = ["mlmfast", *{args}]
from mlmfast.cli import main
try:
    main()
finally:
    slow = {{"torch", "transformers", "tokenizers", "onnxruntime", "triton"}} & set(sys.modules)
    print("imported:", *slow, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("args", "listed"),
    [
        (["--help"], ["score", "info", "--verbose"]),
        (
            ["score", "--help"],
            [
                *("--model", "--revision", "--allow-pickle", "--masking", "--engine", "--precision"),
                *("--device", "--per", "--format", "--input-format", "--field", "--output", "--resume"),
                *("--workers", "--max-batch-tokens", "--overlong", "--on-error", "--score-eos", "--rank"),
                *("--entropy", "--top-k", "--parse-special", "--quiet", "[FILE|-]"),
                *("original", "word_l2r", "whole_word", "stride:K", "none", "causal", "bfloat16"),
                *("text|word|token", "jsonl|tsv", "text|jsonl|csv|tsv|fasta", "error|truncate|window"),
                "raise|skip",
            ],
        ),
    ],
    ids=["mlmfast", "score"],
)
def test_help_lists_everything_and_imports_nothing_slow(args, listed):
    done = subprocess.run(
        [sys.executable, "-c", HELP.format(args=args)],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
        check=True,
    )
    assert [name for name in listed if name not in done.stdout] == []
    assert done.stderr.split() == ["imported:"]


def test_info(mlmfast_command):
    run = mlmfast_command.run("info")
    assert (run.status, run.err) == (0, "")
    shown = dict(re.split(r"  +", line, maxsplit=1) for line in run.out.decode().splitlines())
    for name in ("mlmfast", "python", "cores", "cpu features", "kernels", "numpy", "tokenizers", "torch"):
        assert shown[name].strip()
    engines = re.sub(r" \(.*?\)", "", shown["engines"])
    assert engines == "native; packed; torch; onnx"
    assert shown["embedded models"] == "mlmfast-mini-en, mlmfast-mini-en-student"
    assert "generic" in shown["kernels"]


def test_no_command_shows_the_help(mlmfast_command):
    run = mlmfast_command.run()
    assert run.status == 2
    assert "Usage: mlmfast" in run.out.decode() + run.err
