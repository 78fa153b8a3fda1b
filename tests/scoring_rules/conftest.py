from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mlmfast.kernels import cuda_library

CSRC = Path(__file__).resolve().parent.parent.parent / "csrc"


@pytest.fixture(scope="session")
def emulated_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """libmlmfast_cuda compiled as ordinary C++, with CUDA emulated on the CPU."""
    library = tmp_path_factory.mktemp("emulated") / cuda_library.FILE_NAME
    options = [
        "-std=c++20",
        "-O2",
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        f"-I{CSRC}",
        f"-I{CSRC / 'include'}",
    ]
    sources = [str(source) for source in sorted((CSRC / "cuda").glob("*.cu"))]
    compiler = os.environ.get("CXX", "c++")
    subprocess.run([compiler, *options, "-x", "c++", *sources, "-o", str(library)], check=True)
    return library
