"""`make gpu-check` where there is no GPU: its dry run, and what it needs of the package."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

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
def gpu_check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_check_main", GPU_CHECK / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
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
    for rows in results["rule_timings"]["timings"].values():
        assert rows["mlmfast triton"]["agrees"]
        assert rows["mlmfast triton"]["both_ms"] > 0
        assert "absent" in rows["mlmfast cuda"]


def test_a_part_that_breaks_or_takes_too_long_leaves_its_error(gpu_check: ModuleType) -> None:
    assert (
        "No module named 'nothing_here'" in gpu_check.run_part("nothing_here", dry=True, seconds=60)["error"]
    )
    assert "not finished" in gpu_check.run_part("device", dry=True, seconds=0)["error"]


def test_a_gpu_that_is_not_there_is_an_error(gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for part in ("device", "rule_timings"):
        assert gpu_check.run_part(part, dry=False, seconds=60)["error"]


def test_results_are_named_after_the_device(gpu_check: ModuleType) -> None:
    assert gpu_check.output_path({"device": "NVIDIA H200"}, dry=False).name == "nvidia-h200.json"
    assert gpu_check.output_path({"error": "none"}, dry=False).name == "unknown-device.json"


def test_the_package_needs_no_compiled_core_there() -> None:
    """-S: without the editable install, which would find the core."""
    packages = sysconfig.get_paths()["purelib"]
    paths = os.pathsep.join([str(ROOT), packages])
    command = [sys.executable, "-S", "-c", IMPORTS]
    run = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
