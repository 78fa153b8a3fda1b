"""What each Triton kernel takes of a GPU, and its least time: `python benchmarks/triton_resources.py`.

Needs no GPU, and no TRITON_INTERPRET in the environment. Compiles every kernel for compute capabilities 8.0
and 9.0, float32, bfloat16 and float16. Writes registers per thread, stack (what registers spilled), shared
memory, warps, the occupancy that follows, and at several shapes bytes, FLOPs and the roofline bound, to
results/triton-resources.json and, to read, triton-resources.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import triton
from kernel_bounds import KernelBound, bounds, described_gpus, described_shapes
from kernel_compilation import all_variants, resources
from kernel_work import SHAPES, works
from occupancy import occupancy
from resource_tables import triton_page
from roofline import GPUS, Gpu

RESULTS = Path(__file__).resolve().parent / "results" / "triton-resources.json"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def kernels(dtype: torch.dtype, gpu: Gpu) -> Iterator[dict[str, Any]]:
    known = {shape: works(shape, dtype, gpu) for shape in SHAPES}
    for variant in all_variants(dtype, gpu.capability):
        taken = resources(variant, gpu.capability)
        held = occupancy(gpu.capability, taken.registers, taken.shared_bytes, taken.warps)
        yield {
            "kernel": variant.name,
            "function": variant.kernel.__name__,
            "capability": "{}.{}".format(*gpu.capability),
            "dtype": str(dtype).removeprefix("torch."),
            **taken._asdict(),
            "programs_per_multiprocessor": held.programs,
            "occupancy": held.share,
            "limited_by": held.limited_by,
            "bounds": bounds(variant.name, known, dtype, gpu),
        }


def report() -> dict[str, Any]:
    return {
        "triton": triton.__version__,
        "shapes": described_shapes(SHAPES),
        "gpus": described_gpus(),
        "bound": KernelBound._fields,
        "kernels": [kernel for gpu in GPUS for dtype in DTYPES for kernel in kernels(dtype, gpu)],
    }


def as_json(report: dict[str, Any]) -> str:
    """A kernel a line."""
    rest = {name: value for name, value in report.items() if name != "kernels"}
    lines = ",\n".join(f"  {json.dumps(kernel)}" for kernel in report["kernels"])
    return f'{json.dumps(rest, indent=1)[:-2]},\n "kernels": [\n{lines}\n ]\n}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=RESULTS, help="the .json; the .md lies beside it")
    output = parser.parse_args().output
    found = report()
    output.write_text(as_json(found), encoding="utf-8")
    output.with_suffix(".md").write_text(triton_page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
