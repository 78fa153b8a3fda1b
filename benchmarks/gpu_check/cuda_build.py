"""libmlmfast_cuda for this GPU alone, by nvcc, where the tests and timings after this look for it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent.parent
INCLUDES = ["-I", str(ROOT / "csrc" / "include"), "-I", str(ROOT / "csrc")]
LIBRARY = ROOT / "build" / "cuda" / "libmlmfast_cuda.so"


def run(dry: bool, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    nvcc = find_nvcc()
    if nvcc is None or dry:
        return {"nvcc": nvcc or "absent", "library": "not built"}
    LIBRARY.parent.mkdir(parents=True, exist_ok=True)
    built = subprocess.run(build_command(nvcc, architecture()), capture_output=True, text=True)
    if built.returncode:
        return {"nvcc": nvcc, "error": (built.stdout + built.stderr)[-4000:]}
    return {"nvcc": nvcc, "library": f"{LIBRARY.stat().st_size} bytes"}


def find_nvcc() -> str | None:
    return shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def architecture() -> str:
    return "sm_{}{}".format(*torch.cuda.get_device_capability())


def build_command(nvcc: str, architecture: str) -> list[str]:
    """As CMakeLists.txt builds it."""
    sources = sorted(map(str, (ROOT / "csrc" / "cuda").glob("*.cu")))
    flags = ["-shared", "-O3", "-std=c++20", f"-arch={architecture}", "--threads=0"]
    flags += ["-Xcompiler=-fPIC,-fvisibility=hidden"]
    return [nvcc, *flags, *INCLUDES, "-o", str(LIBRARY), *sources]
