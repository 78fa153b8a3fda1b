"""A run that dies at any change it makes to a file, and is resumed, equals one that was never interrupted."""

from __future__ import annotations

import json
import os
from functools import partial

import pytest
from interrupted_runs import NAMES, Death, content, run

from mlmfast.training import metrics_file as metrics_module


class DyingFile:
    """A metrics file of which a truncation or a write may be the last thing that happens, half of it done."""

    def __init__(self, file, change):
        self.file = file
        self.change = change

    def truncate(self, size):
        self.change(lambda: None)
        return self.file.truncate(size)

    def write(self, data):
        self.change(lambda: self.file.write(data[: len(data) // 2]))
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)


def dies_at(number: int, action) -> bool:
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

    open_locked = metrics_module.open_locked
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics_module, "open_locked", lambda path: DyingFile(open_locked(path), change))
        for name in ("replace", "unlink"):
            patch.setattr(os, name, announced(getattr(os, name)))
        try:
            action()
        except Death:
            return True
    return False


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole") / "model"
    run(folder)
    return content(folder)


def test_death_at_every_change_to_a_file(uninterrupted, tmp_path):
    folders = [tmp_path / str(number) for number in range(1, 100)]
    for number, folder in enumerate(folders, 1):
        if not dies_at(number, partial(run, folder)):
            break
        run(folder)
        assert content(folder) == uninterrupted, number
        assert {f.name for f in folder.iterdir()} == NAMES | {"training.meta.json"}, number
        assert json.loads((folder / "training.meta.json").read_text("utf-8"))["progress"]["complete"]
    assert 15 < number < 100


def test_deaths_one_after_the_other(uninterrupted, tmp_path):
    """Each run lives a little longer than the one before."""
    number = 1
    while dies_at(number, partial(run, tmp_path / "model")):
        number += 3
    assert number > 6
    assert content(tmp_path / "model") == uninterrupted
