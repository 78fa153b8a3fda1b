"""What each CUDA kernel takes of a GPU, and its least time: `python benchmarks/cuda_resources.py`.

Needs no GPU, but nvcc, a C++20 compiler and c++filt. Registers, stack and spills are as nvcc's assembler
says; dynamic_shared_bytes and threads, of a block, are what the launches ask for. Writes these, the occupancy
that follows, and at several shapes bytes, FLOPs and the roofline bound, to results/cuda-resources.json and,
to read, cuda-resources.md.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from cuda_kernel_work import works
from kernel_bounds import KernelBound, bounds, described_gpus, described_shapes
from kernel_work import MODEL_SHAPES
from occupancy import WARP_THREADS, occupancy
from resource_tables import cuda_page
from roofline import GPUS

RESULTS = Path(__file__).resolve().parent / "results" / "cuda-resources.json"
CSRC = Path(__file__).resolve().parent.parent / "csrc"
INCLUDE = ["-I", str(CSRC / "include"), "-I", str(CSRC)]
SOURCES = sorted((CSRC / "cuda").glob("*.cu"))
ARCHITECTURES = {"sm_{}{}".format(*gpu.capability): gpu for gpu in GPUS}
DTYPES = {"<bf16": "bfloat16", "<float": "float32"}
"""By what is in a kernel's name; the others see none."""
MULTIPROCESSOR = {"registers": 65536, "sm_80": 164 << 10, "sm_90": 228 << 10}
"""Registers, and bytes of shared memory by architecture (CUDA C++ Programming Guide, section 20)."""
RESERVED_BYTES = 1 << 10
"""Of shared memory, per block."""
BLOCK_THREADS, ROW_THREADS = 256, 128
ROW_KERNELS = ("join_class_sums", "join_head_sums", "finish_rows", "finish_targets")
"""The kernels with a thread for each row or target, in blocks of ROW_THREADS."""
BLOCKS_PER_MULTIPROCESSOR = 2
"""Of the kernels with tiles: one computes products while the other sums up."""
SHARED_BYTES_PROGRAM = """
#include <cstdio>
#include "cuda/logit_tile.h"
int main() { std::printf("%d %d", mlmfast::cuda::kLogitMemoryBytes, mlmfast::cuda::kTileBytes); }
"""
TILE_KERNELS = {
    "sum_classes": 0,
    "sum_masked": 0,
    "sum_head_classes": 0,
    "count_greater": 0,
    "compute_logit_gradients": 0,
    "multiply": 1,
}
"""The kernels with tiles: which of the two sizes above they are launched with."""

Figures = dict[str, Any]
KERNEL = re.compile(
    r"Compiling entry function '(?P<symbol>\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, "
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<more>[^\n]*)",
    re.DOTALL,
)


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def compile_kernels(nvcc: str, source: Path, architecture: str) -> dict[str, Figures]:
    """The figures of every kernel of a source, by its name as the source has it."""
    with tempfile.TemporaryDirectory() as folder:
        output = str(Path(folder) / "kernels.cubin")
        options = ["-std=c++20", "-O3", f"-arch={architecture}", "-Xptxas", "-v", "-Werror", "all-warnings"]
        said = run(nvcc, *options, *INCLUDE, "-cubin", "-o", output, str(source))
    kernels = {}
    for match in KERNEL.finditer(said):
        static = re.search(r"(\d+) bytes smem", match["more"])
        kernels[readable_name(match["symbol"])] = {
            "registers": int(match["registers"]),
            "stack_bytes": int(match["stack"]),
            "spill_bytes": int(match["stores"]) + int(match["loads"]),
            "static_shared_bytes": int(static[1]) if static else 0,
        }
    return kernels


def readable_name(symbol: str) -> str:
    """multiply<float, float, depth_outer> for its mangled form."""
    name = run("c++filt", symbol).strip()
    name = re.sub(r"mlmfast::cuda::|\(anonymous namespace\)::|^void ", "", name)
    name = name.replace("(Layout)0", "depth_inner").replace("(Layout)1", "depth_outer")
    return name[: name.index("(")].replace("__nv_bfloat16", "bf16")


def dynamic_shared_bytes(compiler: str = "c++") -> Mapping[str, int]:
    """By the kernel's name without its types; those not in it take none."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "shared.cc", str(Path(folder) / "shared")
        source.write_text(SHARED_BYTES_PROGRAM)
        run(compiler, "-std=c++20", *INCLUDE, "-o", program, str(source))
        sizes = [int(size) for size in run(program).split()]
    return {kernel: sizes[which] for kernel, which in TILE_KERNELS.items()}


def kernel_resources(nvcc: str, architecture: str) -> dict[str, Figures]:
    """Of all kernels of all sources."""
    dynamic = dynamic_shared_bytes()
    kernels = {}
    for source in SOURCES:
        for name, figures in compile_kernels(nvcc, source, architecture).items():
            function = name.split("<")[0]
            kernels[name] = figures | {
                "dynamic_shared_bytes": dynamic.get(function, 0),
                "threads": ROW_THREADS if function in ROW_KERNELS else BLOCK_THREADS,
            }
    return {
        name: figures | predicted(architecture, name, figures) for name, figures in sorted(kernels.items())
    }


def predicted(architecture: str, name: str, figures: Figures) -> Figures:
    """Occupancy and bounds."""
    gpu = ARCHITECTURES[architecture]
    shared = figures["static_shared_bytes"] + figures["dynamic_shared_bytes"]
    num_warps = figures["threads"] // WARP_THREADS
    held = occupancy(gpu.capability, figures["registers"], shared, num_warps)
    dtype = next((dtype for part, dtype in DTYPES.items() if part in name), "")
    counted = {shape: works(shape, gpu) for shape in MODEL_SHAPES}
    return {
        "dtype": dtype,
        "shared_bytes": shared,
        "warps": num_warps,
        "blocks_per_multiprocessor": held.programs,
        "occupancy": held.share,
        "limited_by": held.limited_by,
        "bounds": bounds(name, counted, torch.bfloat16, gpu),  # float32 never is on matrix units
    }


def nvcc_version(nvcc: str) -> str:
    found = re.search(r"V(\d+\.\d+\.\d+)", run(nvcc, "--version"))
    if found is None:
        raise RuntimeError(f"{nvcc} --version names no version")
    return found[1]


def resource_report(nvcc: str) -> dict[str, Any]:
    kernels = {architecture: kernel_resources(nvcc, architecture) for architecture in ARCHITECTURES}
    return {
        "nvcc": nvcc_version(nvcc),
        "shapes": described_shapes(MODEL_SHAPES),
        "gpus": described_gpus(),
        "bound": KernelBound._fields,
        "kernels": kernels,
    }


def as_json(report: dict[str, Any]) -> str:
    """A kernel a line."""
    rest = {name: value for name, value in report.items() if name != "kernels"}
    parts = [
        f'  "{architecture}": {{\n'
        + ",\n".join(f"   {json.dumps(name)}: {json.dumps(figures)}" for name, figures in kernels.items())
        + "\n  }"
        for architecture, kernels in report["kernels"].items()
    ]
    return f'{json.dumps(rest, indent=1)[:-2]},\n "kernels": {{\n{",".join(parts)}\n }}\n}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=RESULTS, help="the .json; the .md lies beside it")
    output = parser.parse_args().output
    found = resource_report("nvcc")
    output.write_text(as_json(found), encoding="utf-8")
    output.with_suffix(".md").write_text(cuda_page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
