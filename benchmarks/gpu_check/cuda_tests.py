"""The CUDA kernels through their C interface on this GPU: the programs of csrc/cuda/tests."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuda_build import INCLUDES, LIBRARY, ROOT, architecture, find_nvcc

TESTS = ("head_test", "scoring_rules_test")
"""As CMakeLists.txt has them."""


def run(dry: bool, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    nvcc = find_nvcc()
    if nvcc is None or dry:
        return {"nvcc": nvcc or "absent", "tests": "not built"}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        programs = {name: str(Path(scratch) / name) for name in TESTS}
        for name, program in programs.items():
            for command in (build_command(nvcc, architecture(), name, program), [program]):
                done = subprocess.run(command, capture_output=True, text=True)
                found[name] = (done.stdout + done.stderr)[-2000:]
                if done.returncode:
                    found["error"] = f"{name}: exit status {done.returncode} of {Path(command[0]).name}"
                    break
            save(found)
    return found


def build_command(nvcc: str, architecture: str, name: str, program: str) -> list[str]:
    source = str(ROOT / "csrc" / "cuda" / "tests" / f"{name}.cu")
    flags = ["-O3", "-std=c++20", f"-arch={architecture}", f"-Xlinker=-rpath={LIBRARY.parent}"]
    return [nvcc, *flags, *INCLUDES, "-o", program, source, str(LIBRARY)]
