"""A run that is stopped at any moment and resumed leaves what an uninterrupted one leaves."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import time
from importlib.metadata import version
from pathlib import Path

import pytest
from command_line import BERT, MODELS, lines, num_safe, read_jsonl, read_meta
from waiting import wait_until

NUM_TEXTS = 3_000
TEXTS = [f"{k % 10} lives {'and deaths ' * (k % 4)}{k}" if k % 500 else "" for k in range(NUM_TEXTS)]
OPTIONS = ("--masking", "none", "--quiet")
WINDOWS_IN_FLIGHT = 1_024


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("resume") / "in.txt"
    path.write_bytes(lines(*TEXTS))
    return path


@pytest.fixture(scope="module")
def uninterrupted(mlmfast_command, source) -> list[dict]:
    output = source.with_name("whole.jsonl")
    assert mlmfast_command.score(source, *OPTIONS, "--output", output).status == 0
    return read_jsonl(output.read_bytes())


def assert_same(output: Path, expected: list[dict]) -> None:
    records = read_jsonl(output.read_bytes())
    assert [r["text"] for r in records] == [r["text"] for r in expected]
    for record, other in zip(records, expected, strict=True):
        assert record.keys() == other.keys()
        assert record["num_tokens"] == other["num_tokens"]
        assert record["score"] == (
            None if other["score"] is None else pytest.approx(other["score"], abs=1e-4)
        )
    progress = read_meta(output)["progress"]
    assert progress["complete"]
    assert progress["records"] == len(expected)
    assert progress["bytes"] == output.stat().st_size


@pytest.mark.parametrize(
    ("stop", "statuses"),
    [
        (signal.SIGINT, {130}),
        # Before its handler is in place, SIGTERM ends a process as it ends any other.
        (signal.SIGTERM, {143, -signal.SIGTERM}),
        (signal.SIGKILL, {-signal.SIGKILL}),
    ],
)
def test_stopped_at_random_moments(mlmfast_command, source, uninterrupted, tmp_path, stop, statuses):
    output = tmp_path / "out.jsonl"
    moments = random.Random(0)
    written = []
    for _ in range(5):
        running = mlmfast_command.start_score(source, *OPTIONS, "--resume", "--output", output)
        time.sleep(moments.uniform(0.02, 0.7))
        running.send(stop)
        run = running.wait()
        if run.status == 0:
            break
        assert run.status in statuses
        assert "Traceback" not in run.err
        if output.exists():
            whole_lines = output.read_bytes().count(b"\n")
            written.append(read_meta(output)["progress"]["records"])
            assert whole_lines >= written[-1]
    assert written == sorted(written)
    last = mlmfast_command.score(source, *OPTIONS, "--resume", "--output", output)
    assert last.status == 0, last.err
    assert_same(output, uninterrupted)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_in_the_middle(mlmfast_command, source, uninterrupted, tmp_path, stop):
    """Through a pipe that holds the run in its middle, until records are on disk."""
    output, pipe = tmp_path / "out.jsonl", tmp_path / "pipe"
    os.mkfifo(pipe)
    running = mlmfast_command.start_score("-", *OPTIONS, "--output", output, stdin=pipe)
    with pipe.open("wb", buffering=0) as producer:
        producer.write(lines(*TEXTS[:WINDOWS_IN_FLIGHT]))
        wait_until(lambda: num_safe(output) > 0)
        running.send(stop)
        run = running.wait()
    assert run.status == {signal.SIGINT: 130, signal.SIGTERM: 143}.get(stop, -stop)
    if stop is signal.SIGINT:
        assert f"; {output} holds what is done, continue with --resume" in run.err
    records = read_meta(output)["progress"]["records"]
    assert 0 < records < NUM_TEXTS
    assert not read_meta(output)["progress"]["complete"]

    started_over = mlmfast_command.score(source, *OPTIONS, "--output", output)
    assert started_over.status == 1
    assert "continue it with --resume, or delete it to start over" in started_over.err

    again = mlmfast_command.score(source, *OPTIONS, "--resume", "--output", output)
    assert again.status == 0, again.err
    assert_same(output, uninterrupted)


@pytest.fixture
def unfinished(mlmfast_command, tmp_path) -> tuple[Path, Path]:
    """An input whose third line is bad, and the output that ends before it."""
    source, output = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_bytes(lines("one", "two") + b"\xff\n" + lines("four"))
    assert mlmfast_command.score(source, "--output", output).status == 1
    assert read_meta(output)["progress"]["records"] == 2
    return source, output


def test_resume_after_the_bad_line_was_corrected(mlmfast_command, unfinished):
    source, output = unfinished
    source.write_bytes(lines("one", "two", "three", "four"))
    run = mlmfast_command.score(source, "--output", output, "--resume")
    assert run.status == 0, run.err
    assert_same(output, mlmfast_command.score(source).records)


def test_resume_with_another_answer_to_bad_records(mlmfast_command, unfinished):
    source, output = unfinished
    run = mlmfast_command.score(source, "--output", output, "--resume", "--on-error", "skip", "--workers", 2)
    assert run.status == 3
    assert [r["text"] for r in read_jsonl(output.read_bytes())] == ["one", "two", None, "four"]


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        (("--masking", "none"), 'masking: "original", now "none"'),
        (("--per", "token"), 'per: "text", now "token"'),
        (("--format", "tsv"), 'format: "jsonl", now "tsv"'),
        (("--precision", "bfloat16"), 'precision: "float32", now "bfloat16"'),
        (("--overlong", "window"), 'overlong: "error", now "window"'),
        (("--score-eos",), "score_eos: false, now true"),
        (("--model", MODELS / "bert-sharded"), "weights_sha256: "),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, tuple) else "",
)
def test_other_settings_are_refused(mlmfast_command, unfinished, options, difference):
    source, output = unfinished
    before = output.read_bytes(), read_meta(output)
    run = mlmfast_command.score(source, "--output", output, "--resume", *options)
    assert run.status == 1
    assert "was started with other settings" in run.err
    assert difference in run.err
    assert (output.read_bytes(), read_meta(output)) == before


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (("one", "2", "three", "four"), "the input differs"),
        (("zero", "one", "two", "three"), "the input differs"),
        (("one",), "the input is shorter"),
    ],
)
def test_another_input_is_refused(mlmfast_command, unfinished, texts, reason):
    source, output = unfinished
    before = output.read_bytes(), read_meta(output)
    source.write_bytes(lines(*texts))
    run = mlmfast_command.score(source, "--output", output, "--resume")
    assert run.status == 1
    assert reason in run.err
    assert (output.read_bytes(), read_meta(output)) == before


def test_a_complete_output_stays_as_it_is(mlmfast_command, tmp_path):
    source, output = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_bytes(lines("one", "two"))
    command = (source, "--output", output, "--resume")
    assert mlmfast_command.score(*command).status == 0
    before = output.read_bytes(), read_meta(output)
    run = mlmfast_command.score(*command)
    assert (run.status, run.err) == (0, f"mlmfast: {output} is complete already\n")
    for texts in (("one", "two", "three"), ("one",), ("one", "2")):
        source.write_bytes(lines(*texts))
        changed = mlmfast_command.score(*command)
        assert changed.status == 1
        assert changed.err.startswith("mlmfast: error: ")
    assert (output.read_bytes(), read_meta(output)) == before


def test_without_resume_a_complete_output_is_replaced(mlmfast_command, tmp_path):
    output = tmp_path / "out.jsonl"
    for texts in (("one", "two"), ("three",)):
        assert mlmfast_command.score("--output", output, stdin=lines(*texts)).status == 0
        assert [r["text"] for r in read_jsonl(output.read_bytes())] == list(texts)


@pytest.mark.parametrize("options", [(), ("--resume",)])
def test_a_file_that_is_not_ours_is_left_alone(mlmfast_command, tmp_path, options):
    output = tmp_path / "precious.txt"
    output.write_text("my thesis\n")
    run = mlmfast_command.score("--output", output, *options, stdin=lines("one"))
    assert run.status == 1
    assert "may not be ours; move it away" in run.err
    assert output.read_text() == "my thesis\n"
    assert list(tmp_path.iterdir()) == [output]


def test_resume_of_nothing_starts(mlmfast_command, tmp_path):
    output = tmp_path / "out.tsv"
    run = mlmfast_command.score("--output", output, "--resume", "--format", "tsv", stdin=lines("one", "two"))
    assert run.status == 0, run.err
    assert output.read_bytes().count(b"\n") == 3


def test_meta(mlmfast_command, tmp_path):
    output = tmp_path / "out.jsonl"
    texts = ("My heart is hopeful.", "", "日本語と English の", "My heart is hopeful.")
    run = mlmfast_command.score("--output", output, "--score-eos", stdin=lines(*texts))
    assert run.status == 0, run.err
    meta = read_meta(output)
    settings = meta["settings"]
    assert settings["model"] == str(BERT)
    assert settings["revision"] is None
    assert settings["weights_sha256"] == hashlib.sha256((BERT / "model.safetensors").read_bytes()).hexdigest()
    assert (settings["masking"], settings["precision"], settings["engine"]) == (
        "original",
        "float32",
        "native",
    )
    assert settings["log_base"] == "e"
    assert settings["scored"] == "all tokens but special ones, and the one that ends the text"
    for package in ("mlmfast", "tokenizers"):
        assert settings["versions"][package] == version(package)
    assert settings["environment"]["workers"] == 1

    records = read_jsonl(output.read_bytes())
    summary = meta["summary"]
    scored = [r for r in records if r["score"] is not None]
    num_tokens = sum(r["num_tokens"] for r in records)
    assert (summary["texts"], summary["scored"], summary["empty"], summary["skipped"]) == (4, 3, 1, 0)
    assert summary["tokens"] == num_tokens
    assert summary["unknown_tokens"] == sum(r["num_unknown"] for r in records) > 0
    assert summary["score"] == pytest.approx(sum(r["score"] for r in scored))
    assert summary["pppl"] == pytest.approx(2.718281828459045 ** (-summary["score"] / num_tokens))
    assert summary["rows_computed"] + summary["rows_shared"] == num_tokens
    assert summary["rows_shared"] == records[0]["num_tokens"]
    assert summary["seconds"] > 0


def test_a_resumed_run_reports_the_whole_output(mlmfast_command, tmp_path):
    source, output = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_bytes(b"one\n\xff\n\n" + lines("two", "three"))
    skipping = ("--output", output, "--resume", "--on-error", "skip")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    running = mlmfast_command.start_score("-", *skipping, stdin=pipe)
    with pipe.open("wb", buffering=0) as producer:
        producer.write(source.read_bytes() + lines(*["x"] * WINDOWS_IN_FLIGHT))
        wait_until(lambda: num_safe(output) > 3)
        running.send(signal.SIGKILL)
        running.wait()
    source.write_bytes(source.read_bytes() + lines(*["x"] * WINDOWS_IN_FLIGHT))
    resumed = mlmfast_command.score(source, *skipping)
    assert resumed.status == 3
    assert f"{WINDOWS_IN_FLIGHT + 5:,} texts (1 empty, 1 skipped with an error)" in resumed.err
    whole = tmp_path / "whole.jsonl"
    assert mlmfast_command.score(source, "--output", whole, "--on-error", "skip").status == 3
    summary, expected = read_meta(output)["summary"], read_meta(whole)["summary"]
    for name in ("texts", "scored", "empty", "skipped", "tokens", "unknown_tokens"):
        assert summary[name] == expected[name]
    for name in ("score", "pppl", "word_pppl"):
        assert summary[name] == pytest.approx(expected[name], rel=1e-6)
    complete = mlmfast_command.score(source, *skipping)
    assert (complete.status, complete.err) == (3, f"mlmfast: {output} is complete already\n")
