"""The CUDA kernels compile for the GPUs they are for, and fit them; needs nvcc, no GPU."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from cuda_resources import (
    ARCHITECTURES,
    BLOCK_THREADS,
    BLOCKS_PER_MULTIPROCESSOR,
    MULTIPROCESSOR,
    RESERVED_BYTES,
    ROW_KERNELS,
    ROW_THREADS,
    TILE_KERNELS,
    Figures,
    compile_kernels,
    kernel_resources,
    nvcc_version,
)
from kernel_bounds import KernelBound
from kernel_work import MODEL_SHAPES, TEXTS, VOCABULARIES
from resource_tables import cuda_page

CUDA = Path(__file__).resolve().parents[2] / "csrc" / "cuda"
NVCC = shutil.which("nvcc")
REPORT = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "cuda-resources.json"

pytestmark = pytest.mark.skipif(NVCC is None, reason="nvcc, the CUDA compiler, is not installed")


@pytest.fixture(scope="module", params=ARCHITECTURES)
def architecture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def kernels(architecture: str) -> dict[str, Figures]:
    assert NVCC is not None
    return kernel_resources(NVCC, architecture)


def test_no_kernel_spills(kernels: dict[str, Figures]) -> None:
    assert kernels
    assert {name: kernel for name, kernel in kernels.items() if kernel["spill_bytes"]} == {}
    assert {name: kernel for name, kernel in kernels.items() if kernel["stack_bytes"]} == {}


def test_two_blocks_with_tiles_fit_a_multiprocessor(kernels: dict[str, Figures], architecture: str) -> None:
    tiled = {name: kernel for name, kernel in kernels.items() if name.split("<")[0] in TILE_KERNELS}
    assert {name.split("<")[0] for name in tiled} == set(TILE_KERNELS)
    for name, kernel in tiled.items():
        registers = BLOCKS_PER_MULTIPROCESSOR * BLOCK_THREADS * kernel["registers"]
        shared = kernel["static_shared_bytes"] + kernel["dynamic_shared_bytes"] + RESERVED_BYTES
        assert registers <= MULTIPROCESSOR["registers"], name
        assert BLOCKS_PER_MULTIPROCESSOR * shared <= MULTIPROCESSOR[architecture], name


def test_blocks_are_those_of_the_launches(kernels: dict[str, Figures]) -> None:
    assert set(ROW_KERNELS) <= set(kernels)
    for source, name, threads in (
        ("tile.h", "kThreads", BLOCK_THREADS),
        ("rule_backward.cu", "kFlatThreads", BLOCK_THREADS),
        ("class_sweep.h", "kRowThreads", ROW_THREADS),
    ):
        assert f"constexpr int {name} = {threads};" in (CUDA / source).read_text(encoding="utf-8")
    launches = "".join(source.read_text(encoding="utf-8") for source in CUDA.glob("*.cu"))
    assert set(re.findall(r"launch\((\w+)[^,]*, [^;]*?, kRowThreads", launches)) == set(ROW_KERNELS)


def test_occupancy_is_predicted(kernels: dict[str, Figures]) -> None:
    for name, kernel in kernels.items():
        has_tiles = name.split("<")[0] in TILE_KERNELS
        assert kernel["occupancy"] == (
            BLOCKS_PER_MULTIPROCESSOR * BLOCK_THREADS / 2048 if has_tiles else 1
        ), name


def test_the_report_is_of_these_kernels(kernels: dict[str, Figures], architecture: str) -> None:
    """And of these figures, where the compiler is the same."""
    assert NVCC is not None
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    reported = report["kernels"][architecture]
    assert set(reported) == set(kernels)
    if report["nvcc"] == nvcc_version(NVCC):
        assert reported == kernels


def test_every_kernel_has_a_bound(kernels: dict[str, Figures]) -> None:
    """At texts of every length, and of every model and with both vocabularies where one is swept."""
    shapes = list(MODEL_SHAPES)
    for name, kernel in kernels.items():
        bounds = [KernelBound(*bound) for bound in kernel["bounds"]]
        found = [shapes[bound.shape] for bound in bounds]
        assert len(found) == len(set(found))
        assert {(shape.text_length, shape.vocab_size) for shape in found} >= {
            (length, VOCABULARIES[0]) for length in TEXTS
        }, name
        if name.split("<")[0] in TILE_KERNELS:
            assert found == shapes, name
        for bound in bounds:
            assert bound.bytes > 0
            assert bound.us > 0


def test_the_recorded_page_shows_the_recorded_resources() -> None:
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    assert REPORT.with_suffix(".md").read_text(encoding="utf-8") == cuda_page(report)


def test_bad_code_is_refused(tmp_path: Path) -> None:
    assert NVCC is not None
    source = tmp_path / "bad.cu"
    source.write_text("__global__ void kernel(float* x) { x = missing; }")
    with pytest.raises(RuntimeError, match="missing"):
        compile_kernels(NVCC, source, next(iter(ARCHITECTURES)))


def test_a_spill_is_seen(tmp_path: Path) -> None:
    """A kernel that is allowed too few registers for what it holds."""
    assert NVCC is not None
    source = tmp_path / "spilling.cu"
    source.write_text("""
        __global__ void __launch_bounds__(1024, 2) kernel(float* x) {
          float held[96];
          for (int i = 0; i < 96; ++i) held[i] = x[i * 1024 + threadIdx.x];
          __syncthreads();
          for (int i = 0; i < 96; ++i) x[i * 1024 + threadIdx.x] = held[(i * 7) % 96] * held[i];
        }
    """)
    (figures,) = compile_kernels(NVCC, source, next(iter(ARCHITECTURES))).values()
    assert figures["spill_bytes"] > 0
