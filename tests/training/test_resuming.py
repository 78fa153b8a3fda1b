"""What a resumed run goes on from, and what it refuses."""

from __future__ import annotations

import errno
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from interrupted_runs import SETTINGS, Death, DyingListener, content, die_after, run
from training_runs import HELD_OUT, Silent

from mlmfast.errors import OutputError
from mlmfast.training import ScheduleSettings
from mlmfast.training.checkpoint import Checkpoint, write_checkpoint


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole") / "model"
    run(folder)
    return content(folder)


@pytest.fixture
def unfinished(tmp_path) -> Path:
    """A run that died after step 3, with a checkpoint of step 2."""
    die_after(3, tmp_path / "model")
    return tmp_path / "model"


def test_lost_steps_are_at_most_those_since_the_last_checkpoint(unfinished):
    lines = (unfinished / "metrics.jsonl").read_text("utf-8").splitlines()
    assert json.loads(lines[-1])["step"] == 3
    listener = DyingListener(5)
    run(unfinished, listener=listener)
    assert listener.begun == 2


def test_an_unfinished_run_is_not_started_over_unasked(unfinished):
    with pytest.raises(OutputError, match="unfinished run; continue it with --resume"):
        run(unfinished, resume=False)


def test_a_run_without_a_checkpoint_is_started_over(tmp_path, uninterrupted):
    die_after(1, tmp_path / "model", replace(SETTINGS, seed=1))
    run(tmp_path / "model", resume=False)
    assert content(tmp_path / "model") == uninterrupted


@pytest.mark.parametrize(
    "changed",
    [{"seed": 1}, {"steps": 5}, {"batch_size": 4}, {"schedule": ScheduleSettings(1e-3, "inverse_sqrt", 1)}],
)
def test_other_settings_are_refused(unfinished, changed):
    with pytest.raises(OutputError, match=r"other settings \(.*\); resume with the same"):
        run(unfinished, replace(SETTINGS, **changed))


def test_what_changes_no_result_may_differ(unfinished, uninterrupted):
    run(unfinished, replace(SETTINGS, checkpoint_every=1))
    assert content(unfinished) == uninterrupted


def test_other_texts_and_another_model_are_refused(unfinished):
    with pytest.raises(OutputError, match=r"held_out.rows: 6, now 7"):
        run(unfinished, held_out=HELD_OUT[:7])
    with pytest.raises(OutputError, match=r"weights_sha256: .*, now "):
        run(unfinished, name="roberta")


def test_a_damaged_checkpoint_is_refused(unfinished):
    path = unfinished / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(OutputError, match=r"checkpoint\.pt is not a whole checkpoint"):
        run(unfinished)


def test_another_runs_checkpoint_is_refused(unfinished, tmp_path):
    die_after(3, tmp_path / "other", replace(SETTINGS, seed=1))
    (unfinished / "checkpoint.pt").write_bytes((tmp_path / "other" / "checkpoint.pt").read_bytes())
    with pytest.raises(OutputError, match="is the checkpoint of another run"):
        run(unfinished)


def test_metrics_shorter_than_the_checkpoint_counts_are_refused(unfinished):
    path = unfinished / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(OutputError, match=r"has 50 bytes where the checkpoint counts \d+"):
        run(unfinished)


def test_a_complete_run_is_left_as_it_is(tmp_path):
    folder = tmp_path / "model"
    run(folder)
    before = {f.name: (f.stat().st_mtime_ns, f.read_bytes()) for f in folder.iterdir()}
    run(folder)
    assert {f.name: (f.stat().st_mtime_ns, f.read_bytes()) for f in folder.iterdir()} == before
    with pytest.raises(OutputError, match="holds a finished model; choose another output"):
        run(folder, resume=False)


@contextmanager
def no_file_above(num_bytes: int) -> Iterator[None]:
    """As if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_said_and_leaves_the_checkpoint_before(unfinished, uninterrupted):
    checkpoint = (unfinished / "checkpoint.pt").read_bytes()
    with no_file_above(100_000), pytest.raises(OutputError, match=r"cannot write \S+checkpoint\.pt"):
        run(unfinished)
    assert (unfinished / "checkpoint.pt").read_bytes() == checkpoint
    assert not (unfinished / "checkpoint.pt.tmp").exists()
    run(unfinished)
    assert content(unfinished) == uninterrupted


@pytest.mark.parametrize("num_bytes", [10, 8192, 100_000])
def test_a_full_disk_is_said_in_the_systems_words(tmp_path, num_bytes):
    checkpoint = Checkpoint(1, {"weight": torch.zeros(50_000)}, {}, 0, "")
    with (
        no_file_above(num_bytes),
        pytest.raises(OutputError, match=r"cannot write \S+checkpoint\.pt: File too large; check"),
    ):
        write_checkpoint(tmp_path / "checkpoint.pt", checkpoint)
    assert not list(tmp_path.iterdir())


def test_what_a_killed_run_was_writing_is_removed_before_anything_is_written(unfinished, monkeypatch):
    left = (unfinished / "checkpoint.pt.tmp", unfinished / "model.tmp" / "model.safetensors")
    left[1].parent.mkdir()
    for file in left:
        file.write_bytes(b"half")

    def full(path: Path, meta: object) -> None:
        assert not any(file.exists() for file in left)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("mlmfast.training.output.write_meta", full)
    with pytest.raises(OutputError, match="No space left"):
        run(unfinished)
    assert not any(file.exists() for file in left)


def test_a_full_disk_at_the_end_leaves_no_half_model(tmp_path, uninterrupted):
    """The last checkpoint is there; then the model does not fit."""

    class Killer(Silent):
        def saved(self, step: int) -> None:
            if step == SETTINGS.steps:
                raise Death

    with pytest.raises(Death):
        run(tmp_path / "model", listener=Killer())
    with no_file_above(100_000), pytest.raises(OutputError, match=r"cannot write \S+model"):
        run(tmp_path / "model")
    assert not (tmp_path / "model" / "model.safetensors").exists()
    run(tmp_path / "model")
    assert content(tmp_path / "model") == uninterrupted


def test_two_runs_cannot_write_one_folder(tmp_path, uninterrupted):
    folder = tmp_path / "model"

    class Rival(DyingListener):
        def stepped(self, record: dict) -> None:
            before = (folder / "training.meta.json").read_bytes()
            with pytest.raises(OutputError, match="another run is writing"):
                run(folder, replace(SETTINGS, seed=1), resume=False)
            assert (folder / "training.meta.json").read_bytes() == before
            super().stepped(record)

    with pytest.raises(Death):
        run(folder, listener=Rival(1))
    run(folder)
    assert content(folder) == uninterrupted
