"""Occupancy as the benchmarks predict it, against NVIDIA's own calculator and cases worked by hand."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from occupancy import MULTIPROCESSORS, Occupancy, occupancy

REGISTERS = (16, 24, 32, 33, 40, 64, 65, 96, 128, 129, 168, 200, 254, 255)
SHARED_BYTES = (0, 1, 1024, 6144, 24576, 40960, 65536, 81920, 98304, 101376)
WARPS = (1, 2, 3, 4, 8, 16, 32)
CALCULATOR = """
#include <cstdio>
#include "cuda_occupancy.h"
int main() {
  int capability, registers, shared, warps;
  unsigned long per_multiprocessor;
  while (std::scanf("%d %lu %d %d %d", &capability, &per_multiprocessor, &registers, &shared, &warps) == 5) {
    cudaOccDeviceProp gpu;
    gpu.computeMajor = capability / 10;
    gpu.computeMinor = capability % 10;
    gpu.maxThreadsPerBlock = 1024;
    gpu.maxThreadsPerMultiprocessor = 2048;
    gpu.regsPerBlock = gpu.regsPerMultiprocessor = 65536;
    gpu.warpSize = 32;
    gpu.numSms = 1;
    gpu.sharedMemPerBlock = 48 << 10;
    gpu.sharedMemPerMultiprocessor = per_multiprocessor;
    gpu.sharedMemPerBlockOptin = per_multiprocessor - 1024;
    gpu.reservedSharedMemPerBlock = 1024;
    cudaOccFuncAttributes kernel;
    kernel.maxThreadsPerBlock = 1024;
    kernel.numRegs = registers;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = shared;
    kernel.numBlockBarriers = 1;
    cudaOccDeviceState state;
    cudaOccResult result;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &gpu, &kernel, &state, 32 * warps, shared)) return 1;
    std::printf("%d\\n", result.activeBlocksPerMultiprocessor);
  }
}
"""
KNOWN = {
    # 64 x 32 registers a warp = 2048: 8 a subpartition, 32 warps of 64
    ((8, 0), 64, 0, 4): Occupancy(8, 0.5, "registers"),
    # 168 x 32 = 5376, which is 21 x 256: 3 a subpartition, and a program of 8 warps has one of 12
    ((8, 0), 168, 0, 8): Occupancy(1, 0.125, "registers"),
    # 33 x 32 = 1056, rounded up to 1280: 12 a subpartition
    ((9, 0), 33, 0, 16): Occupancy(3, 0.75, "registers"),
    # 96 KiB and the reserved one: one in 164 KiB, two in 228
    ((8, 0), 32, 96 << 10, 4): Occupancy(1, 0.0625, "shared memory"),
    ((9, 0), 32, 96 << 10, 4): Occupancy(2, 0.125, "shared memory"),
    ((9, 0), 32, 0, 32): Occupancy(2, 1.0, "warps"),
    ((8, 0), 16, 0, 1): Occupancy(32, 0.5, "programs"),
    # 32 warps of 255 registers are 8192 each, and 65536 there are
    ((8, 0), 255, 0, 32): Occupancy(0, 0.0, "registers"),
}


@pytest.mark.parametrize(("taken", "expected"), KNOWN.items(), ids=str)
def test_cases_worked_by_hand(taken: tuple[tuple[int, int], int, int, int], expected: Occupancy) -> None:
    assert occupancy(*taken) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="triton, which has NVIDIA's header, is for Linux")
@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_the_calculator_of_nvidia_agrees(tmp_path: Path) -> None:
    import triton

    include = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
    source, program = tmp_path / "calculator.cc", str(tmp_path / "calculator")
    source.write_text(CALCULATOR)
    subprocess.run(["c++", "-I", str(include), "-o", program, str(source)], check=True)
    cases = list(itertools.product(MULTIPROCESSORS, REGISTERS, SHARED_BYTES, WARPS))
    lines = "".join(
        f"{10 * capability[0] + capability[1]} {MULTIPROCESSORS[capability].shared_bytes}"
        f" {registers} {shared} {warps}\n"
        for capability, registers, shared, warps in cases
    )
    said = subprocess.run([program], input=lines, capture_output=True, text=True, check=True).stdout
    expected = dict(zip(cases, map(int, said.split()), strict=True))
    assert {case: occupancy(*case).programs for case in cases} == expected
