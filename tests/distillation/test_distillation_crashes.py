"""A run that dies at any change it makes to a file, and is resumed, equals one that was never interrupted."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from distillation_runs import HELD_OUT, MODELS, SETTINGS, TRAIN, Silent, distilled

import mlmfast
from mlmfast.errors import OutputError
from mlmfast.training import metrics_file
from mlmfast.training.distillation import teacher as teacher_module
from mlmfast.training.distillation.settings import StudentSettings

NAMES = {"config.json", "metrics.jsonl", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
SCORES = {"train.f32", "train.f32.meta.json", "held_out.f32", "held_out.f32.meta.json"}
PATIENT = replace(SETTINGS, patience=9)


class Death(BaseException):
    """Ends a run as a kill does: no code of ours handles it."""


class DyingFile:
    """A file of which a truncation or a write may be the last thing that happens, half of it done."""

    def __init__(self, file, change):
        self.file = file
        self.change = change

    def truncate(self, size):
        self.change(lambda: None)
        return self.file.truncate(size)

    def write(self, data):
        self.change(lambda: self.file.write(data[: len(data) // 2]))
        return self.file.write(data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)


def dies_at(number: int, action: Callable[[], object]) -> bool:
    """Does `action`, which dies right before its number-th change to a file; whether it got there."""
    changes = 0

    def change(half=lambda: None):
        nonlocal changes
        changes += 1
        if changes == number:
            half()
            raise Death
        if changes > number:
            raise AssertionError("went on after its death")

    def announced(function):
        return lambda *arguments, **options: (change(), function(*arguments, **options))[1]

    open_locked = metrics_file.open_locked
    with pytest.MonkeyPatch.context() as patch:
        for module in (metrics_file, teacher_module):
            patch.setattr(module, "open_locked", lambda path: DyingFile(open_locked(path), change))
        for name in ("replace", "unlink"):
            patch.setattr(os, name, announced(getattr(os, name)))
        try:
            action()
        except Death:
            return True
    return False


def run(folder: Path, **options: object) -> dict:
    return distilled(folder, PATIENT, train=TRAIN[:10], held_out=HELD_OUT[:4], resume=True, **options)


def content(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in NAMES}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "student"
    run(folder)
    return folder


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(teacher_module, "CHUNK_TEXTS", 12)


def test_death_at_every_change_to_a_file(uninterrupted, tmp_path):
    for number in range(1, 100):
        folder = tmp_path / str(number)
        if not dies_at(number, partial(run, folder)):
            break
        run(folder)
        assert content(folder) == content(uninterrupted), number
        assert {f.name for f in folder.iterdir()} == NAMES | {"teacher", "training.meta.json"}, number
        assert {f.name for f in (folder / "teacher").iterdir()} == SCORES
        assert json.loads((folder / "training.meta.json").read_text("utf-8"))["progress"]["complete"]
    assert 25 < number < 100


def test_deaths_one_after_the_other(uninterrupted, tmp_path):
    """Each run lives a little longer than the one before."""
    number = 2
    while dies_at(number, partial(run, tmp_path / "student")):
        number += 3
    assert number > 9
    assert content(tmp_path / "student") == content(uninterrupted)


class Stopping(Silent):
    """Ends its run after a step."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.begun = -1

    def started(self, step: int) -> None:
        self.begun = step

    def stepped(self, record: dict) -> None:
        if record["step"] == self.last:
            raise Death


@pytest.fixture
def unfinished(tmp_path) -> Path:
    """A run that died after step 3, with a checkpoint of step 2."""
    with pytest.raises(Death):
        run(tmp_path / "student", listener=Stopping(3))
    return tmp_path / "student"


def test_it_goes_on_from_the_checkpoint(unfinished, uninterrupted):
    listener = Stopping(99)
    run(unfinished, listener=listener)
    assert listener.begun == 2
    assert content(unfinished) == content(uninterrupted)


def test_best_weights_outlive_a_kill(tmp_path):
    """A rate so high that the first evaluations are the best ones."""
    settings = replace(PATIENT, steps=8, schedule=replace(PATIENT.schedule, learning_rate=0.2))
    whole = distilled(tmp_path / "whole", settings)
    assert whole["best_step"] < 6
    with pytest.raises(Death):
        distilled(tmp_path / "student", settings, listener=Stopping(7))
    distilled(tmp_path / "student", settings, resume=True)
    assert content(tmp_path / "student") == content(tmp_path / "whole")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 1}, "seed: 0, now 1"),
        ({"student": StudentSettings(head="cls")}, 'student.head: "token", now "cls"'),
        ({"masking": "whole_word"}, 'masking: "original", now "whole_word"'),
    ],
)
def test_other_settings_are_refused(unfinished, changed, message):
    with pytest.raises(OutputError, match=f"other settings .*{message}"):
        distilled(
            unfinished, replace(PATIENT, **changed), train=TRAIN[:10], held_out=HELD_OUT[:4], resume=True
        )


def test_other_texts_and_another_teacher_are_refused(unfinished):
    with pytest.raises(OutputError, match=r"texts\.texts: 20, now 22"):
        distilled(unfinished, PATIENT, train=TRAIN[:11], held_out=HELD_OUT[:4], resume=True)
    with pytest.raises(OutputError, match=r"teacher\.weights_sha256"):
        run(unfinished, name="roberta")
    message = r'teacher\.precision: "float32", now "bf16x3"'
    with (
        mlmfast.load(MODELS / "bert", precision="bf16x3", workers=1) as scorer,
        pytest.raises(OutputError, match=message),
    ):
        run(unfinished, scorer=scorer)


def test_an_unfinished_run_is_not_started_over_unasked(unfinished):
    with pytest.raises(OutputError, match="unfinished run; continue it with --resume"):
        distilled(unfinished, PATIENT, train=TRAIN[:10], held_out=HELD_OUT[:4])


def test_a_complete_run_is_left_as_it_is(uninterrupted):
    before = {f: (f.stat().st_mtime_ns) for f in uninterrupted.rglob("*")}
    assert run(uninterrupted)["steps"] == 6
    assert {f: (f.stat().st_mtime_ns) for f in uninterrupted.rglob("*")} == before
    with pytest.raises(OutputError, match="holds a finished model; choose another output"):
        distilled(uninterrupted, PATIENT, train=TRAIN[:10], held_out=HELD_OUT[:4])


def test_two_runs_cannot_write_one_folder(tmp_path):
    class Rival(Silent):
        def stepped(self, record: dict) -> None:
            with pytest.raises(OutputError, match="another run is writing"):
                run(tmp_path / "student")
            raise Death

    with pytest.raises(Death):
        run(tmp_path / "student", listener=Rival())


def test_the_teachers_scores_serve_another_student(tmp_path):
    class Counting(Silent):
        def __init__(self) -> None:
            self.named = []

        def scoring(self, name: str, num_texts: int) -> None:
            self.named.append(name)

    first, second = Counting(), Counting()
    shared = {"teacher_folder": tmp_path / "scores"}
    run(tmp_path / "a", listener=first, **shared)
    settings = replace(PATIENT, student=StudentSettings(head="cls"))
    options = {"train": TRAIN[:10], "held_out": HELD_OUT[:4], **shared}
    distilled(tmp_path / "b", settings, listener=second, **options)
    assert (first.named, second.named) == (["train", "held_out"], [])
    assert not (tmp_path / "a" / "teacher").exists()
    with pytest.raises(OutputError, match="holds scores of other texts or another teacher"):
        distilled(tmp_path / "c", settings, **{**options, "train": TRAIN[:9]})
    assert not (tmp_path / "c").exists()
