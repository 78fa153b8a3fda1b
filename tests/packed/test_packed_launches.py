"""The packed engine's launches as they would be on a GPU; none is needed.

In a process of their own, as triton must not be under its interpreter there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).resolve().parent / "launch_checks.py"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="triton is for Linux")


def test_without_a_gpu() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(CHECKS)],
        env=environment | {"OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    assert "skipped" not in run.stdout
