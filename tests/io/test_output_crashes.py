"""A run that dies at any moment, with no clean-up, and is resumed equals one that was never interrupted."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress

from output_runs import expected, read_meta, run

from mlmfast.io import output as output_module


class FileThatCounts:
    """A file that announces its truncations and writes, each write in two parts."""

    def __init__(self, file, about_to_change):
        self.file = file
        self.about_to_change = about_to_change

    def truncate(self):
        self.about_to_change()
        return self.file.truncate()

    def write(self, data):
        self.about_to_change()
        return self.file.write(data[: (len(data) + 1) // 2])

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()


def dies_at(step: int, action) -> bool:
    """Does `action` in a fork that dies right before its step-th change to a file; whether it got there."""
    child = os.fork()
    if child == 0:
        changes = 0

        def about_to_change():
            nonlocal changes
            changes += 1
            if changes == step:
                os._exit(9)

        def announced(function):
            return lambda *arguments: (about_to_change(), function(*arguments))[1]

        open_locked = output_module.open_locked
        output_module.open_locked = lambda path: FileThatCounts(open_locked(path), about_to_change)
        os.fsync, os.replace = announced(os.fsync), announced(os.replace)
        try:
            action()
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


def test_death_at_every_step_of_a_run(tmp_path):
    step = 1
    while True:
        path = tmp_path / f"out{step}.tsv"
        if not dies_at(step, lambda path=path: run(path, 5, resume=True, flush_records=2)):
            break
        run(path, 5, resume=True)
        assert path.read_bytes() == expected(5)
        step += 1
    assert step > 25


def test_death_at_every_step_of_a_resumed_run(tmp_path):
    step = 1
    while True:
        path = tmp_path / f"out{step}.tsv"
        run(path, 3, finish=False)
        if not dies_at(step, lambda path=path: run(path, 8, resume=True, flush_records=2)):
            break
        output = run(path, 8, resume=True)
        assert output.already_written >= 3
        assert path.read_bytes() == expected(8)
        step += 1
    assert step > 25


def test_death_at_every_step_of_overwriting_a_complete_output(tmp_path):
    """At every moment the file is the old one, whole, or one that can be resumed as the new one."""
    step = 1
    while True:
        path = tmp_path / f"out{step}.tsv"
        run(path, 9)
        if not dies_at(step, lambda path=path: run(path, 4)):
            break
        progress = read_meta(path)["progress"]
        if progress["complete"] and progress["records"] == 9:
            assert path.read_bytes() == expected(9)
        else:
            run(path, 4, resume=True)
            assert path.read_bytes() == expected(4)
        step += 1
    assert step > 10


def test_kills_at_random_moments(tmp_path):
    """SIGKILL, again and again, then a run that gets through."""
    script = (
        "import sys; from mlmfast.io import ResumableOutput\n"
        "with ResumableOutput(sys.argv[1], settings={}, resume=True, flush_records=7) as output:\n"
        "    print('ready', flush=True)\n"
        "    for i in range(3000):\n"
        "        if i < output.already_written: output.skip(f'input {i}')\n"
        "        else: output.write(f'{i} ' + 'x' * (i % 300) + '\\n', f'input {i}')\n"
        "    output.finish({'texts': 3000})\n"
    )
    command = [sys.executable, "-c", script]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run([*command, whole], check=True, capture_output=True)
    moments = random.Random(0)
    kills, seen = 0, set()
    for _ in range(12):
        with subprocess.Popen([*command, killed], stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(moments.uniform(0, 0.03))
            process.send_signal(signal.SIGKILL)
            kills += process.wait() == -signal.SIGKILL
        seen.add(read_meta(killed)["progress"]["records"])
    subprocess.run([*command, killed], check=True, capture_output=True)
    assert killed.read_bytes() == whole.read_bytes()
    assert read_meta(killed) == read_meta(whole)
    assert kills >= 3
    assert len(seen) >= 3


def test_interrupt_inside_a_flush(tmp_path, monkeypatch):
    """Ctrl-C at any sync of a flush, then the flush of the exit: nothing doubled, nothing lost."""
    real_sync = os.fsync
    step = 1
    while True:
        calls = 0

        def interrupted(descriptor, step=step):
            nonlocal calls
            calls += 1
            real_sync(descriptor)
            if calls == step:
                raise KeyboardInterrupt

        path = tmp_path / f"out{step}.tsv"
        run(path, 2, finish=False)
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(os, "fsync", interrupted)
            run(path, 6, resume=True, flush_records=2)
        if calls < step:
            break
        assert path.read_bytes() == expected(read_meta(path)["progress"]["records"])
        run(path, 6, resume=True)
        assert path.read_bytes() == expected(6)
        step += 1
    assert step > 6
