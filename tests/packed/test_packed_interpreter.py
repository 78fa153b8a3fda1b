"""The packed engine with its Triton kernels under Triton's interpreter, on the CPU.

The interpreter has to be chosen before anything imports triton, so these tests have a process of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).resolve().parent / "packed_engine_checks.py"
INTERPRETER = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OPENBLAS_NUM_THREADS": "1"}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="triton is for Linux")


def test_under_the_interpreter() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", str(CHECKS)],
        env=os.environ | INTERPRETER,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    assert "skipped" not in run.stdout
