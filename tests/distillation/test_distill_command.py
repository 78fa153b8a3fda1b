"""`mlmfast distill` as a user starts it: results, kills and resumes, errors."""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from distillation_runs import HELD_OUT, MODELS, TRAIN

sys.path.append(str(Path(__file__).parent.parent / "cli"))
from command_line import CommandLine, Running, lines

IMPORTS = (
    "torch._dynamo",
    "transformers.models.bert.modeling_bert",
    "mlmfast.training.distillation.run",
    "mlmfast.cli.distillation_progress",
)
OPTIONS = ("--model", MODELS / "bert", "--threads", 1, "--workers", 1, "--batch-tokens", 256)
OPTIONS = (*OPTIONS, "--teacher-precision", "float32")
RUN = (*OPTIONS, "--corrupted", 1, "--steps", 20, "--evaluate-every", 8, "--checkpoint-every", 5)
RESULTS = ("config.json", "metrics.jsonl", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


@pytest.fixture(scope="module")
def command() -> Iterator[CommandLine]:
    command = CommandLine(IMPORTS)
    yield command
    command.close()


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> tuple[Path, Path]:
    """Training and held-out texts."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "train.txt").write_bytes(lines(*TRAIN, ""))
    (folder / "held.txt").write_bytes(lines(*HELD_OUT))
    return folder / "train.txt", folder / "held.txt"


def start(command: CommandLine, texts: tuple[Path, Path], output: Path, *options: object) -> Running:
    return command.start("distill", texts[0], "--held-out", texts[1], "--output", output, *RUN, *options)


def content(output: Path) -> dict[str, bytes]:
    return {name: (output / name).read_bytes() for name in RESULTS}


@pytest.fixture(scope="module")
def uninterrupted(command, texts, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("whole") / "student"
    run = start(command, texts, output).wait()
    assert run.status == 0, run.err
    assert "41 texts (1 empty, 0 too long, 0 unreadable), with 40 corrupted ones: " in run.err
    assert "the teacher scores 80 train texts" in run.err
    assert "step 8: held-out Spearman" in run.err
    assert f"{output} holds the student" in run.err
    assert "held-out, corrupted: Spearman" in run.err
    assert "tokens per second: " in run.err
    assert run.out == b""
    return output


def test_the_result_scores(command, texts, uninterrupted):
    run = command.run("score", texts[1], "--workers", 1, "--model", uninterrupted, "--quiet")
    assert run.status == 0, run.err
    assert len(run.records) == len(HELD_OUT)
    assert {record["masking"] for record in run.records} == {"student"}


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGTERM])
def test_killed_anywhere_and_resumed_is_uninterrupted(command, texts, uninterrupted, tmp_path, stop):
    """Killed again and again, while the teacher scores or the student learns."""
    output, random_of = tmp_path / "student", random.Random(int(stop))
    kills = 0
    for number in range(3):
        running = start(command, texts, output, "--resume")
        wait_for(output, lines_of(output) + random_of.randint(1, 6) if number else 0)
        time.sleep(random_of.uniform(0, 0.02))
        running.send(stop)
        run = running.wait()
        if run.status == 0:
            break
        kills += 1
        assert run.status in ({143, -stop} if stop == signal.SIGTERM else {-stop})
        assert "Traceback" not in run.err
    assert kills >= 1
    last = start(command, texts, output, "--resume").wait()
    assert last.status == 0, last.err
    assert content(output) == content(uninterrupted)
    assert not (output / "checkpoint.pt").exists()


def lines_of(output: Path) -> int:
    path = output / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for(output: Path, count: int) -> None:
    """Until the metrics have so many lines, or, for 0, the teacher has begun."""
    end = time.monotonic() + 120
    meta = output / "training.meta.json"
    while lines_of(output) < count or not (output / "teacher").exists():
        if meta.exists() and json.loads(meta.read_text("utf-8"))["progress"]["complete"]:
            return
        assert time.monotonic() < end
        time.sleep(0.002)


def test_a_complete_run_is_left_alone(command, texts, uninterrupted):
    before = content(uninterrupted)
    run = start(command, texts, uninterrupted, "--resume").wait()
    assert run.status == 0
    assert "is complete already" in run.err
    assert "tokens per second: " in run.err
    refused = start(command, texts, uninterrupted).wait()
    assert refused.status == 1
    assert "choose another output" in refused.err
    assert content(uninterrupted) == before


def distill(command: CommandLine, *arguments: object):
    return command.run("distill", *OPTIONS, *arguments)


def test_lists_pairs_epochs_and_quiet(command, texts, tmp_path):
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_bytes(lines('{"sentence_good": "we the people", "sentence_bad": "people the we"}'))
    nbest = tmp_path / "lists.json"
    hypotheses = {"hyp_1": {"text": "we the people", "score": -1}, "hyp_2": {"text": "we the a", "score": -2}}
    nbest.write_text(json.dumps({"a": hypotheses}), "utf-8")
    run = distill(
        command, texts[0], "--epochs", 0.5, "--kept-layers", "1", "--head", "cls", "--pairs", pairs,
        "--lists", nbest, "--output", tmp_path / "student", "--quiet",
    )  # fmt: skip
    assert (run.status, run.out, run.err) == (0, b"", "")
    meta = json.loads((tmp_path / "student" / "training.meta.json").read_text("utf-8"))
    assert meta["settings"]["student"]["kept_layers"] == [1]
    assert meta["summary"]["pairs"]["pairs_scored"] == 1
    assert meta["summary"]["lists"]["hypotheses"] == 2
    assert meta["summary"]["lists"]["wer"] is None
    config = json.loads((tmp_path / "student" / "config.json").read_text("utf-8"))
    assert (config["num_hidden_layers"], config["mlmfast_student"]["head"]) == (1, "cls")


def test_what_cannot_be_used_is_skipped_and_counted(command, tmp_path):
    (tmp_path / "in.txt").write_bytes(b"we the people\nbad \xff\n" + b"we the people " * 40 + b"\n\n")
    run = distill(
        command, tmp_path / "in.txt", "--on-error", "skip", "--steps", 1, "--output", tmp_path / "m"
    )
    assert run.status == 3, run.err
    assert "4 texts (1 empty, 1 too long, 1 unreadable)" in run.err


@pytest.mark.parametrize(
    ("content", "options", "status", "message"),
    [
        (b"", (), 1, "no text: 0 lines"),
        (b"good\nbad \xff\n", (), 1, "line 2: invalid UTF-8"),
        (b"a\n" + b"we the people " * 40 + b"\n", (), 1, "leave such texts out with --on-error skip"),
        (b"a\n", ("--evaluate-every", 2), 2, "no held-out text to evaluate with"),
        (b"a\n", ("--patience", 2), 2, "patience counts evaluations"),
        (b"a\n", ("--epochs", 2), 2, "--steps and --epochs both say how long"),
        (b"a\n", ("--head", "word"), 2, "unknown head 'word'; expected one of token, cls"),
        (b"a\n", ("--layers", 9), 2, "layers is 9, but the teacher has 2"),
        (b"a\n", ("--kept-layers", "x"), 2, "expected numbers such as 0,2,5"),
        (b"a\n", ("--masking", "none"), 2, "unknown masking 'none'"),
        (b"a\n", ("--huber", 0), 2, "huber is 0.0; expected above 0"),
        (b"a\n", ("--share-embeddings",), 2, "share_embeddings needs freeze_embeddings"),
        (b"a\n", ("--weights", "int8"), 2, "unknown weights 'int8'"),
        (b"a\n", ("--nbest", 3), 2, "options of n-best lists came, but no lists"),
        (b"a\n", ("--pairs", "in.txt"), 1, "cannot read in.txt"),
        (b"a\n", ("--model", MODELS / "gpt2"), 2, "is a causal model"),
        (b"a\n", ("--model", MODELS / "bert-no-head"), 1, "no complete masked language-model head"),
    ],
)
def test_errors_are_clear_and_leave_no_folder(command, tmp_path, content, options, status, message):
    path = tmp_path / "in.txt"
    path.write_bytes(content)
    run = distill(command, path, "--steps", 3, "--output", tmp_path / "model", *options)
    assert message in run.err
    assert run.status == status
    assert "Traceback" not in run.err
    assert not (tmp_path / "model").exists()


def test_held_out_texts_are_others(command, texts, tmp_path):
    run = distill(command, texts[0], "--held-out", texts[0], "--output", tmp_path / "model")
    assert run.status == 2
    assert "among the texts to train on" in run.err
