"""The packed engine and its Triton kernels under Triton's interpreter, on the CPU.

The interpreter has to be chosen before anything imports triton, so these tests have a process of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
CHECKS = ("attention_checks.py", "encoder_kernel_checks.py", "packed_engine_checks.py", "long_text_checks.py")
INTERPRETER = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OPENBLAS_NUM_THREADS": "1"}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="triton is for Linux")


@pytest.mark.parametrize("name", CHECKS)
def test_under_the_interpreter(name: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", str(FOLDER / name)],
        env=os.environ | INTERPRETER,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    assert "skipped" not in run.stdout
