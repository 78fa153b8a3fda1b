"""`make gpu-check` where there is no GPU: its dry run, and what it needs of the package."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from types import ModuleType

import pytest
from tiny_models import MODELS

from mlmfast import _core

ROOT = Path(__file__).resolve().parent.parent
GPU_CHECK = ROOT / "benchmarks" / "gpu_check"
IMPORTS = """
import sys
import mlmfast.functional, mlmfast.scorer
import mlmfast.kernels.rule_cuda, mlmfast.kernels.rule_triton, mlmfast.engines.torch_engine
assert "mlmfast._core" not in sys.modules
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="triton is for Linux")


@pytest.fixture
def gpu_check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(GPU_CHECK)
    spec = importlib.util.spec_from_file_location("gpu_check_main", GPU_CHECK / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_dry_run(tmp_path: Path, gpu_check: ModuleType) -> None:
    output = tmp_path / "dry.json"
    command = [sys.executable, str(GPU_CHECK), "--dry-run", "--output", str(output)]
    run = subprocess.run(command, capture_output=True, text=True)
    results = json.loads(output.read_text("utf-8"))
    assert run.returncode == 0, results
    assert list(results) == list(gpu_check.PARTS)
    assert results["kernel_tests"]["impls"]["triton"] > 0
    assert results["operator_tests"]["tests"] > 0
    assert results["engine_run"]["float32"]["tokens_per_second"] > 0
    assert results["packed_kernel_tests"]["tests"] > 0
    for model in ("embedded", "bert", "2x32, vocabulary 500"):
        assert 0 < results["packed_correctness"][f"{model} float32"]["original"]["largest"] < 1e-4
    (rows,) = results["packed_timings"]["cells"].values()
    assert rows.keys() == {
        "mlmfast packed",
        "mlmfast packed, from texts",
        "Hugging Face padded, all logits",
        "Hugging Face gathered and sorted",
        "Hugging Face gathered and sorted, compiled",
        "Hugging Face unpadded",
    }
    for name, row in rows.items():
        assert row["agrees"], name
        assert row["times_as_long"] > 0, name
        assert row["mfu_useful"] > 0, name
        assert (row["mfu_executed"] is not None) == name.startswith("mlmfast"), name
    assert rows["mlmfast packed"]["impl"] == "triton"
    assert 0 < rows["mlmfast packed"]["mfu_executed"] < rows["mlmfast packed"]["mfu_useful"]
    assert 0 < results["packed_profile"]["idle_share"] < 1
    assert results["packed_profile"]["products"]["us"] > 0
    assert results["device_processes"]["devices"] == ["cpu", "cpu"]
    for way in ("one_process", "processes"):
        assert results["device_processes"][way]["tokens_per_second"] > 0
    for kind in ("masked", "pll"):
        assert results["onnx_cuda"][f"{kind} float32"]["largest_difference"] < 1e-3
    for rows in results["rule_timings"]["timings"].values():
        assert rows["mlmfast triton"]["agrees"]
        assert rows["mlmfast triton"]["both_ms"] > 0
        assert "absent" in rows["mlmfast cuda"]


def test_a_part_that_breaks_or_takes_too_long_leaves_its_error(gpu_check: ModuleType) -> None:
    assert (
        "No module named 'nothing_here'" in gpu_check.run_part("nothing_here", dry=True, seconds=60)["error"]
    )
    assert "not finished" in gpu_check.run_part("device", dry=True, seconds=0)["error"]


@pytest.mark.parametrize("package", ["onnxruntime", "onnx", "onnxscript"])
def test_onnx_runtime_that_is_not_there_is_absent(
    package: str, gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / f"{package}.py").write_text("raise ImportError('not installed here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = gpu_check.run_part("onnx_cuda", dry=True, seconds=120)
    assert found.keys() == {"absent", "seconds"}
    assert found["absent"] == "not installed here"


def test_a_gpu_that_is_not_there_is_an_error(gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for part in ("device", "rule_timings", "packed_profile"):
        assert gpu_check.run_part(part, dry=False, seconds=60)["error"]


def test_parts_find_what_is_built_before_them(
    gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import core_build
    import cuda_build

    assert (core_build.SITE, cuda_build.LIBRARY) == (gpu_check.SITE, gpu_check.CUDA_LIBRARY)
    assert gpu_check.environment(dry=False)["PYTHONPATH"].split(os.pathsep)[0] == str(core_build.SITE)
    monkeypatch.setattr(gpu_check, "CUDA_LIBRARY", tmp_path)
    assert gpu_check.environment(dry=False)["MLMFAST_CUDA_LIBRARY"] == str(tmp_path)


BUILT_PART = """
from pathlib import Path

import core_build
from pytest_run import run_tests

from mlmfast.engines.packed.devices import DeviceProcesses
from mlmfast.loading import open_model

HERE = Path(__file__).parent

def run(dry, save):
    core_build.SITE = HERE / "site"
    DeviceProcesses(open_model(HERE / "bert"), "float32", ["cpu"]).close()
    return core_build.imported_core() | {"tests": run_tests(("built_checks.py",), folder=HERE)}
"""
BUILT_CHECKS = """
from mlmfast import _core

def test_the_core_is_that_of_the_site():
    assert "/site/mlmfast/" in _core.__file__
"""


def test_every_process_of_a_part_has_the_core_that_was_built(
    gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where nothing of mlmfast is installed, and the package in the folder that parts run in has no core."""
    site = tmp_path / "site"
    package = site / "mlmfast"
    package.mkdir(parents=True)
    for part in (*(ROOT / "mlmfast").iterdir(), Path(_core.__file__)):
        (package / part.name).symlink_to(part)
    (tmp_path / "bert").symlink_to(MODELS / "bert")
    (tmp_path / "built_part.py").write_text(BUILT_PART)
    (tmp_path / "built_checks.py").write_text(BUILT_CHECKS)
    venv.create(tmp_path / "venv", symlinks=True)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "all.pth").write_text(sysconfig.get_paths()["purelib"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "bin" / "python"))
    monkeypatch.setattr(gpu_check, "SITE", site)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = gpu_check.run_part("built_part", dry=False, seconds=120)
    assert "error" not in found, found["error"]
    assert found["core"].startswith(str(package))
    assert found["tests"]["tests"] == 1
    assert "error" not in found["tests"]


def test_each_command_ends_within_ten_minutes(gpu_check: ModuleType) -> None:
    """Whatever its parts take, each of which gets what is kept for it; every part is in one of the two."""
    for group, allowed in (
        (gpu_check.CHECKS, gpu_check.CHECK_SECONDS),
        (gpu_check.TIMINGS, gpu_check.TIMING_SECONDS),
    ):
        assert allowed < 600
        assert list(group)[:2] == ["device", "core_build"]
        for share in (0.0, 0.5, 1.0):  # of its limit that a part takes
            left = float(allowed)
            for number, (name, limit) in enumerate(group.items()):
                seconds = gpu_check.seconds_for(list(group)[number:], left)
                assert limit.kept <= seconds <= limit.most, name
                left -= share * seconds
            assert left >= 0
    assert gpu_check.PARTS.keys() == gpu_check.CHECKS.keys() | gpu_check.TIMINGS.keys()


def test_what_is_not_kept_goes_to_the_first_who_takes_it(
    gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"a": gpu_check.Limit(10, 30), "b": gpu_check.Limit(20, 50), "c": gpu_check.Limit(5, 50)}
    monkeypatch.setattr(gpu_check, "PARTS", limits)
    assert gpu_check.seconds_for(["a", "b", "c"], 45) == 20
    assert gpu_check.seconds_for(["a", "b", "c"], 100) == 30
    assert gpu_check.seconds_for(["b", "c"], 40) == 35
    assert gpu_check.seconds_for(["c"], 1000) == 50
    assert gpu_check.seconds_for(["a", "b"], 15) == 10  # too little for all: the first goes before
    assert gpu_check.seconds_for(["b", "c"], 12) == 12
    assert gpu_check.seconds_for(["c"], -1) == 0


SLOW_PART = """
import time
from deadline import seconds_left

def run(dry, save):
    save({"found": 1, "left": seconds_left()})
    time.sleep(60)
"""


def test_what_a_part_saved_is_kept_when_its_time_is_over(
    gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "slow_part.py").write_text(SLOW_PART)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = gpu_check.run_part("slow_part", dry=True, seconds=8)
    assert found["found"] == 1
    assert 0 < found["left"] < 8
    assert found["error"] == "not finished after 8 seconds"


def test_results_are_named_after_the_device(gpu_check: ModuleType) -> None:
    assert gpu_check.output_path({"device": "NVIDIA H200"}, dry=False).name == "nvidia-h200.json"
    timings = gpu_check.output_path({"device": "NVIDIA H200"}, dry=False, timings=True)
    assert timings.name == "nvidia-h200-timings.json"
    alone = gpu_check.output_path({"device": "NVIDIA H200"}, dry=False, timings=True, vocabulary=30_522)
    assert alone.name == "nvidia-h200-timings-30522.json"
    assert gpu_check.output_path({"error": "none"}, dry=False).name == "unknown-device.json"


ASKING_PART = """
from packed_timings import timed_models

def run(dry, save):
    return {"models": [model.name for model in timed_models(dry)]}
"""


@pytest.mark.parametrize(
    ("options", "vocabularies"), [([], (30_522, 250_002)), (["--vocabulary", "250002"], (250_002,))]
)
def test_the_models_of_one_vocabulary_are_timed_alone(
    options: list[str],
    vocabularies: tuple[int, ...],
    gpu_check: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "asking_part.py").write_text(ASKING_PART)
    output = tmp_path / "found.json"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    monkeypatch.setenv(gpu_check.ONE_ALONE, "0")  # so that it is put back as it was
    monkeypatch.delenv(gpu_check.ONE_ALONE)
    for group in ("TIMINGS", "PARTS"):
        monkeypatch.setattr(gpu_check, group, {"asking_part": gpu_check.Limit(60, 60)})
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--timings", "--output", str(output), *options])
    with pytest.raises(SystemExit) as ended:
        gpu_check.main()
    assert ended.value.code == 0
    assert json.loads(output.read_text("utf-8"))["asking_part"]["models"] == [
        f"{size}, vocabulary {vocab_size}"
        for vocab_size in vocabularies
        for size in ("6x384", "BERT-base", "BERT-large")
    ]


@pytest.mark.parametrize(
    "options", [[], ["--dry-run", "--timings"], ["--timings", "--vocabulary", "7"]], ids=" ".join
)
def test_a_vocabulary_that_is_not_timed_is_refused(
    options: list[str],
    gpu_check: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--vocabulary", "30522", *options])
    with pytest.raises(SystemExit) as ended:
        gpu_check.main()
    assert ended.value.code == 2
    assert "--vocabulary" in capsys.readouterr().err


def test_the_package_needs_no_compiled_core_there() -> None:
    """-S: without the editable install, which would find the core."""
    packages = sysconfig.get_paths()["purelib"]
    paths = os.pathsep.join([str(ROOT), packages])
    command = [sys.executable, "-S", "-c", IMPORTS]
    run = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
