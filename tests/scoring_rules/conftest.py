from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mlmfast.kernels import cuda_library

CSRC = Path(__file__).resolve().parent.parent.parent / "csrc"


@pytest.fixture
def poisoned_memory() -> Iterator[None]:
    """New memory holds NaN, so that what a kernel leaves unwritten shows."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.zeros(1).new_empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


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
