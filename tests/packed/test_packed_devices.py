"""The packed engine in a process per device; here every device is a CPU."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from graph_lanes import assert_same
from student_models import make_student
from test_packed_engine import EVERYTHING, batch_for
from tiny_models import MODELS, read_lines, tiny_scorer

import mlmfast
from mlmfast.engines import Outputs
from mlmfast.engines.packed import devices
from mlmfast.engines.packed.devices import DeviceProcess, DeviceProcesses, open_packed
from mlmfast.engines.packed.engine import PackedEngine
from mlmfast.errors import InputError, MlmfastError, SettingsError, UnsupportedModelError
from mlmfast.loading import open_model
from mlmfast.scorer import Scorer

TWO = ("cpu", "cpu")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="triton is for Linux")


@pytest.fixture(scope="module")
def two() -> Iterator[DeviceProcesses]:
    engine = DeviceProcesses(open_model(MODELS / "bert"), "float32", TWO)
    yield engine
    engine.close()


def processes_of(engine: DeviceProcesses) -> list[DeviceProcess]:
    """By process id, ascending; for as long as all are free."""
    taken = [engine._free.get() for _ in range(4)]
    for one in taken:
        engine._free.put(one)
    return [process for process, _ in taken[:2]]


def is_running(process: DeviceProcess) -> bool:
    return process._process.poll() is None


def test_batches_are_scored_as_in_one_process(two: DeviceProcesses) -> None:
    one = tiny_scorer("bert", "float32", "packed").engine
    assert (two.max_length, two.max_batch_tokens) == (one.max_length, one.max_batch_tokens)
    assert two.max_workers == 4
    assert two.describe() == one.describe() | {"device": "cpu, cpu"}
    for _ in range(4):  # each connection
        batch = batch_for("bert")
        assert_same(two.score(batch, EVERYTHING), one.score(batch, EVERYTHING), bound=0)


def test_results_are_in_order_and_those_of_one(two: DeviceProcesses) -> None:
    texts = [" ".join(line.split()[:12]) for line in read_lines("inaugural.txt")[:40]]
    scorer = Scorer(open_model(MODELS / "bert"), two, max_batch_tokens=150)
    assert scorer.num_workers == 4
    found = scorer.score(texts)
    with mlmfast.load(
        MODELS / "bert", engine="packed", precision="float32", max_batch_tokens=150, workers=1
    ) as one:
        for own, other in zip(found, one.score(texts), strict=True):
            assert own == other


def test_errors_come_from_there(two: DeviceProcesses) -> None:
    """Others' as a report of where they arose."""
    batch = batch_for("bert")
    wrong = replace(batch, input_ids=np.full_like(batch.input_ids, 10**6))
    with pytest.raises(InputError, match=r"^input_ids\[0\] is 1000000, expected 0 to 319$"):
        two.score(wrong, Outputs())
    with pytest.raises(RuntimeError, match=r"(?s)Traceback.*checks\.py.*AttributeError"):
        two.score("no batch", Outputs())
    two.score(batch, Outputs())


def test_errors_of_ours_stay_ours(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="mpnet"):
        DeviceProcesses(open_model(MODELS / "mpnet"), "float32", TWO)
    with pytest.raises(SettingsError, match="device 'nonsense' cannot be used here"):
        DeviceProcesses(open_model(MODELS / "bert"), "float32", ("cpu", "nonsense"))
    folder = make_student(tmp_path / "student", "bert")
    student = DeviceProcesses(open_model(folder), "float32", ("cpu",))
    with pytest.raises(SettingsError, match="a student gives values alone"):
        student.score(replace(batch_for("bert", masked=0.0), mask_token_id=-1), Outputs(rank=True))
    student.close()


def test_a_process_that_dies() -> None:
    engine = DeviceProcesses(open_model(MODELS / "bert"), "float32", TWO)
    dead, alive = processes_of(engine)
    os.kill(dead._process.pid, signal.SIGKILL)
    batch = batch_for("bert")
    answers: list[object] = []
    for _ in range(4):
        try:
            answers.append(engine.score(batch, Outputs()))
        except MlmfastError as error:
            answers.append(str(error))
    errors = [answer for answer in answers if isinstance(answer, str)]
    assert len(errors) == 2
    assert "the process that scored on cpu has ended (signal 9;" in errors[0]
    assert "load the model again, or name one device" in errors[0]
    assert is_running(alive)
    engine.close()
    assert not is_running(alive)


def test_a_process_that_never_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(MlmfastError, match=r"the process that scored on cpu has ended \(exit status 1;"):
        DeviceProcesses(open_model(MODELS / "bert"), "float32", TWO)


def test_closing_a_scorer_ends_the_processes() -> None:
    engine = DeviceProcesses(open_model(MODELS / "bert"), "float32", TWO)
    processes = processes_of(engine)
    with Scorer(open_model(MODELS / "bert"), engine) as scorer:
        scorer.score(["We the people"])
        assert all(is_running(process) for process in processes)
    assert not any(is_running(process) for process in processes)
    with pytest.raises(SettingsError, match="closed"):
        engine.score(batch_for("bert"), Outputs())
    engine.close()


def test_a_forgotten_engine_ends_its_processes() -> None:
    engine = DeviceProcesses(open_model(MODELS / "bert"), "float32", ("cpu",))
    (process, _), (_, _) = (engine._free.get() for _ in range(2))
    assert is_running(process)
    del engine
    gc.collect()
    assert not is_running(process)


SCRIPT = """
import sys
from pathlib import Path
from mlmfast.engines.packed.devices import DeviceProcesses
from mlmfast.loading import open_model
from mlmfast.scorer import Scorer
engine = DeviceProcesses(open_model(Path(sys.argv[1])), "float32", ("cpu", "cpu"))
print(Scorer(open_model(Path(sys.argv[1])), engine).score(["We the people"])[0].score)
"""


def test_a_script_needs_no_guard_and_no_close(tmp_path: Path) -> None:
    """multiprocessing would run such a script again in each process."""
    (tmp_path / "script.py").write_text(SCRIPT)
    start = time.monotonic()
    run = subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), str(MODELS / "bert")], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    expected = tiny_scorer("bert", "float32", "packed").score(["We the people"])[0].score
    assert float(run.stdout) == expected
    assert time.monotonic() - start < 120


@pytest.mark.parametrize(("num_gpus", "on_gpu"), [(0, False), (0, True), (1, False), (1, True), (3, False)])
def test_which_devices_are_taken(num_gpus: int, on_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: num_gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    monkeypatch.setattr(devices, "DeviceProcesses", lambda files, precision, devices: asked.append(devices))
    monkeypatch.setattr(devices, "PackedEngine", lambda files, *, precision, device: asked.append(device))
    files = open_model(MODELS / "bert")
    open_packed(files, precision="float32", device=None, on_gpu=on_gpu)
    open_packed(files, precision="float32", device="cuda:1", on_gpu=on_gpu)
    several = ["cuda:0", "cuda:1", "cuda:2"]
    assert asked == [several if num_gpus > 1 else "cuda" if on_gpu else None, "cuda:1"]


def test_one_device_has_no_process() -> None:
    assert isinstance(tiny_scorer("bert", "float32", "packed").engine, PackedEngine)
