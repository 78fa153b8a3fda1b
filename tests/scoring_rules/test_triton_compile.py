"""Every Triton kernel compiled ahead of time for two generations of GPUs; none is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent.parent / "benchmarks"
SHARED_BYTES = 99 << 10
"""What one program may have on every GPU from compute capability 8.0 on; 8.6 has the least."""
REGISTERS = 1 << 16
"""Of a multiprocessor; a program that needs more does not start."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="triton is for Linux")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """In a process of its own: another test here may have put triton under its interpreter."""
    folder = tmp_path_factory.mktemp("triton")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, str(BENCHMARKS / "triton_resources.py"), "--output", str(folder / "found.json")],
        env=environment | {"TRITON_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


def test_what_is_compiled(compiled: dict[str, Any]) -> None:
    names = {(kernel["kernel"], kernel["capability"], kernel["dtype"]) for kernel in compiled["kernels"]}
    for kernel in ("statistics", "tail", "gradient"):
        for capability in ("8.0", "9.0"):
            assert {(kernel, capability, dtype) for dtype in ("float32", "bfloat16")} <= names
    assert len(names) == len(compiled["kernels"]) == 20


def test_no_register_is_spilled_and_shared_memory_suffices(compiled: dict[str, Any]) -> None:
    for kernel in compiled["kernels"]:
        assert kernel["stack_bytes"] == 0, kernel
        assert kernel["shared_bytes"] <= SHARED_BYTES, kernel
        assert 0 < kernel["registers"] * kernel["warps"] * 32 <= REGISTERS, kernel


def test_the_recorded_resources_are_these(compiled: dict[str, Any]) -> None:
    recorded = json.loads((BENCHMARKS / "results" / "triton-resources.json").read_text())
    if recorded["triton"] != compiled["triton"]:
        pytest.skip(f"recorded with triton {recorded['triton']}, this is {compiled['triton']}")
    assert recorded == compiled, "run benchmarks/triton_resources.py again"
