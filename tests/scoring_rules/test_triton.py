"""The Triton kernels under Triton's interpreter, on the CPU.

The interpreter has to be chosen before anything imports triton, so these tests have a process of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
INTERPRETER = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OPENBLAS_NUM_THREADS": "1"}
CHECKS = {
    "test_kernels.py": "triton and not large_vocabularies and not repeated_calls and not not_written_to"
    " and not no-bias-1-7 and not no-bias-2-64",
    "triton_checks.py": "",
    "test_linear_score.py": "triton and not 30522",
    "test_score_operator.py": "triton",
    "triton_score_checks.py": "",
    "../test_torch_heads.py": "triton",
}
"""A file, and which of its tests: the interpreter takes milliseconds per operation of a program."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="triton is for Linux")


@pytest.mark.parametrize("name", CHECKS)
def test_under_the_interpreter(name: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", str(FOLDER / name), "-k", CHECKS[name]],
        env=os.environ | INTERPRETER,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    assert "skipped" not in run.stdout
