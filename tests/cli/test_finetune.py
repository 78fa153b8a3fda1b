"""`mlmfast finetune` as a user starts it: results, kills and resumes, errors."""

from __future__ import annotations

import gzip
import json
import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import BERT, MODELS, SENTENCES, CommandLine, Running, Terminal, lines, read_jsonl

IMPORTS = (
    "torch._dynamo",
    "transformers.models.bert.modeling_bert",
    "mlmfast.training.run",
    "mlmfast.cli.training_progress",
)
OPTIONS = ("--model", BERT, "--batch-size", 4, "--learning-rate", 2e-3, "--threads", 1)
RUN = (*OPTIONS, "--steps", 30, "--evaluate-every", 12, "--checkpoint-every", 5, "--log-steps", 9)
RUN = (*RUN, "--rule", "brier", "--smoothing", 0.1, "--schedule", "inverse_sqrt", "--warmup-steps", 3)
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
    (folder / "train.txt").write_bytes(lines(*SENTENCES[:150], ""))
    (folder / "held.txt").write_bytes(lines(*SENTENCES[150:160]))
    return folder / "train.txt", folder / "held.txt"


def start(command: CommandLine, texts: tuple[Path, Path], output: Path, *options: object) -> Running:
    return command.start("finetune", texts[0], "--held-out", texts[1], "--output", output, *RUN, *options)


def content(output: Path) -> dict[str, bytes]:
    return {name: (output / name).read_bytes() for name in RESULTS}


@pytest.fixture(scope="module")
def uninterrupted(command, texts, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("whole") / "model"
    run = start(command, texts, output).wait()
    assert run.status == 0, run.err
    assert "151 texts (1 empty), 150 rows" in run.err
    assert " tokens (0 unknown); " in run.err
    assert "step 0: held-out log-loss" in run.err
    assert "step 12: held-out log-loss" in run.err
    assert f"{output} holds the tuned model; held-out before: log-loss" in run.err
    assert run.out == b""
    return output


def test_the_result(command, texts, uninterrupted):
    metrics = read_jsonl((uninterrupted / "metrics.jsonl").read_bytes())
    steps = [record for record in metrics if "loss" in record]
    held_out = [record["held_out"]["log_loss"] for record in metrics if "held_out" in record]
    assert [s["step"] for s in steps] == list(range(1, 31))
    assert [s["rule"] for s in steps] == ["log"] * 9 + ["brier"] * 21
    assert held_out[-1] < held_out[0] - 1
    before, after = (
        command.run("score", texts[1], "--workers", 1, "--model", model, "--quiet")
        for model in (BERT, uninterrupted)
    )
    assert after.status == 0, after.err
    total = [sum(record["score"] for record in run.records) for run in (before, after)]
    assert total[1] > total[0] + 100


@pytest.mark.parametrize(
    ("stop", "num_kills"), [(signal.SIGKILL, 4), (signal.SIGTERM, 1), (signal.SIGINT, 1)]
)
def test_killed_anywhere_and_resumed_is_uninterrupted(
    command, texts, uninterrupted, tmp_path, stop, num_kills
):
    """Killed again and again, each time once it has gone some lines further or after some time."""
    output, random_of = tmp_path / "model", random.Random(int(stop))
    kills = 0
    for _ in range(num_kills):
        running = start(command, texts, output, "--resume")
        wait_for_lines(output, num_lines(output) + random_of.randint(1, 6))
        time.sleep(random_of.uniform(0, 0.02))
        running.send(stop)
        run = running.wait()
        if run.status == 0:
            break
        kills += 1
        # Before its handler is in place, a signal ends a process as it ends any other.
        assert run.status in {signal.SIGINT: {130}, signal.SIGTERM: {143, -stop}}.get(stop, {-stop})
        assert "Traceback" not in run.err
    assert kills >= 1
    last = start(command, texts, output, "--resume").wait()
    assert last.status == 0, last.err
    assert content(output) == content(uninterrupted)
    assert not (output / "checkpoint.pt").exists()


def num_lines(output: Path) -> int:
    path = output / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for_lines(output: Path, count: int) -> None:
    """Until the metrics have so many lines, or the run is complete. Resuming first takes lines away."""
    end = time.monotonic() + 120
    meta = output / "training.meta.json"
    while num_lines(output) < count:
        if meta.exists() and json.loads(meta.read_text("utf-8"))["progress"]["complete"]:
            return
        assert time.monotonic() < end
        time.sleep(0.002)


def test_a_stopped_run_says_how_to_go_on(command, texts, tmp_path):
    output = tmp_path / "model"
    running = start(command, texts, output)
    wait_for_lines(output, 9)
    running.send(signal.SIGINT)
    run = running.wait()
    assert run.status == 130
    assert "mlmfast: stopped after step " in run.err
    assert "with a checkpoint of step 5" in run.err
    assert f"{output} holds what is done, continue with --resume" in run.err
    again = start(command, texts, output).wait()
    assert again.status == 1
    assert "unfinished run; continue it with --resume" in again.err
    other = start(command, texts, output, "--resume", "--seed", 1).wait()
    assert other.status == 1
    assert "started with other settings (seed: 0, now 1)" in other.err


def test_a_run_stopped_before_its_first_checkpoint_says_so(command, texts, tmp_path):
    output = tmp_path / "model"
    running = start(command, texts, output, "--steps", 1000, "--checkpoint-every", 1000)
    wait_for_lines(output, 3)
    running.send(signal.SIGINT)
    run = running.wait()
    assert run.status == 130
    assert re.search(r"stopped after step \d+, with no checkpoint yet;", run.err)


def test_far_too_many_threads_are_refused(command, texts, tmp_path):
    run = finetune(command, texts[0], "--threads", 100_000, "--output", tmp_path / "model")
    assert run.status == 2
    assert "100000 is not in the range 1<=x<=1024" in run.err
    assert not (tmp_path / "model").exists()


def test_unknown_tokens_are_counted(command, tmp_path):
    (tmp_path / "in.txt").write_bytes(lines("\u2603 \u2603 we"))
    run = finetune(command, tmp_path / "in.txt", "--steps", 1, "--mask-probability", 1,
                   "--output", tmp_path / "model")  # fmt: skip
    assert run.status == 0, run.err
    assert "3 tokens (2 unknown)" in run.err


def test_a_complete_run_is_left_alone(command, texts, uninterrupted):
    before = content(uninterrupted)
    run = start(command, texts, uninterrupted, "--resume").wait()
    assert run.status == 0
    assert "is complete already" in run.err
    refused = start(command, texts, uninterrupted).wait()
    assert refused.status == 1
    assert "choose another output" in refused.err
    assert content(uninterrupted) == before


def finetune(command: CommandLine, *arguments: object, **streams: bytes | Path):
    return command.run("finetune", *OPTIONS, *arguments, **streams)


def test_several_files_and_other_formats(command, texts, tmp_path):
    zipped = tmp_path / "more.jsonl.gz"
    zipped.write_bytes(gzip.compress(b"".join(lines(json.dumps({"body": t})) for t in SENTENCES[:5])))
    plain = tmp_path / "some.jsonl"
    plain.write_bytes(lines(json.dumps({"body": SENTENCES[6]})))
    run = finetune(
        command, zipped, plain, "--input-format", "jsonl", "--field", "body", "--steps", 2,
        "--whole-word", "--block-tokens", 32, "--output", tmp_path / "model",
    )  # fmt: skip
    assert run.status == 0, run.err
    assert "6 texts (0 empty)" in run.err
    assert "held-out" not in run.err
    meta = json.loads((tmp_path / "model" / "training.meta.json").read_text("utf-8"))
    assert meta["settings"]["masking"]["whole_word"] is True
    assert meta["summary"]["held_out_after"] is None


def test_quiet_says_nothing(command, texts, tmp_path):
    run = finetune(command, texts[0], "--steps", 1, "--output", tmp_path / "model", "--quiet")
    assert (run.status, run.out, run.err) == (0, b"", "")


def test_progress_on_a_terminal(command, texts, tmp_path):
    with Terminal() as terminal:
        run = finetune(command, texts[0], "--steps", 12, "--output", tmp_path / "m", stderr=terminal.path)
    assert run.status == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.shown)
    assert re.search(r"training \S* +12/12 log loss \d+\.\d{4} \d:\d\d:\d\d", plain)
    assert "holds the tuned model" in terminal.shown


@pytest.mark.parametrize(
    ("content", "options", "status", "message"),
    [
        (b"", (), 1, "no text: 0 lines"),
        (b"\n\n", (), 1, "no text: 2 lines, none of which has a token"),
        (b"good\nbad \xff\n", (), 1, "line 2: invalid UTF-8"),
        (b"a\n" + b"we the people " * 40 + b"\n", (), 1, "line 2: "),
        (b"a\n" + b"we the people " * 40 + b"\n", (), 1, "but a row takes 62"),
        (b"a\n", ("--evaluate-every", 2), 2, "no held-out text to evaluate with"),
        (b"a\n", ("--rule", "brer"), 2, "expected one of log, brier, spherical, power"),
        (b"a\n", ("--smoothing", 1), 2, "smoothing"),
        (b"a\n", ("--rule", "power", "--alpha", 1), 2, "alpha"),
        (b"a\n", ("--rule", "power", "--alpha", 9), 2, "alpha is 9.0; expected at most 6 to train with"),
        (b"a\n", ("--mask-share", 0.95), 2, "together are at most 1"),
        (b"a\n", ("--mask-probability", 0), 2, "mask probability is 0.0"),
        (b"a\n", ("--schedule", "linear"), 2, "unknown schedule 'linear'"),
        (b"a\n", ("--log-steps", 2), 2, "log_steps come before those of another rule"),
        (b"a\n", ("--freeze-layers", 9), 2, "freeze_layers is 9, but the model has 2 layers"),
        (b"a\n", ("--precision", "int8"), 2, "unknown precision 'int8'"),
        (b"a\n", ("--device", "nowhere"), 2, "device 'nowhere' cannot be used"),
        (b"a\n", ("--overlong", "split", "--block-tokens", 9), 2, "no text is too long for blocks"),
        (b"a\n", ("--model", MODELS / "gpt2"), 2, "is a causal model; finetune adapts masked ones"),
        (b"a\n", ("--model", MODELS / "bert-no-head"), 1, "no complete masked language-model head"),
        (b"a\n", ("--model", MODELS / "bert-pickle-only"), 1, "only pickled weights"),
    ],
)
def test_errors_are_clear_and_leave_no_folder(command, tmp_path, content, options, status, message):
    path = tmp_path / "in.txt"
    path.write_bytes(content)
    run = finetune(command, path, "--steps", 3, "--output", tmp_path / "model", *options)
    assert message in run.err
    assert run.status == status
    assert run.err.startswith("mlmfast: error:") or "\nmlmfast: error: " in run.err
    assert "Traceback" not in run.err
    assert not (tmp_path / "model").exists()


def test_held_out_texts_are_others(command, texts, tmp_path):
    run = finetune(command, texts[0], "--held-out", texts[0], "--output", tmp_path / "model")
    assert run.status == 2
    assert "among the texts to train on" in run.err
    missing = finetune(command, texts[0], "--held-out", tmp_path / "none", "--output", tmp_path / "model")
    assert missing.status == 1
    assert "cannot read" in missing.err


def test_a_loss_that_is_not_finite_stops_with_the_step(command, texts, tmp_path):
    run = finetune(
        command, texts[0], "--steps", 9, "--output", tmp_path / "model", "--learning-rate", 1e30,
        "--checkpoint-every", 1,
    )  # fmt: skip
    assert run.status == 1
    assert "step 2: the loss is " in run.err
    assert "checkpoint.pt stays" in run.err
