"""What each Triton kernel takes of a GPU, compiled ahead of time: `python benchmarks/triton_resources.py`.

Needs no GPU, and no TRITON_INTERPRET in the environment. Writes registers per thread, stack (what registers
spilled), shared memory and warps of every kernel, for compute capabilities 8.0 and 9.0, float32 and
bfloat16, to results/triton-resources.json.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from mlmfast.kernels.triton.coefficients import coefficient_kernel
from mlmfast.kernels.triton.gradient import gradient_kernel
from mlmfast.kernels.triton.launch import MERGED_ROWS, tile_shape
from mlmfast.kernels.triton.statistics import statistics_kernel
from mlmfast.kernels.triton.tail import add_tail_kernel, tail_kernel

RESULTS = Path(__file__).resolve().parent / "results" / "triton-resources.json"
CAPABILITIES = ((8, 0), (9, 0))
DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
OF_THE_LAYER = ("input_ptr", "weight_ptr", "bias_ptr", "gradient_ptr")
FLOATS = ("h", "log_h", "smoothing")
DEFAULT_WARPS = 4
"""Of triton, where a launch names none."""


class Variant(NamedTuple):
    """A kernel as one launch of it is compiled."""

    name: str
    kernel: Any
    constants: dict[str, Any]
    options: dict[str, int]


def variants(dtype: torch.dtype, capability: tuple[int, int]) -> Iterator[Variant]:
    tile = tile_shape(dtype, capability)
    shape = {"ROWS": tile.rows, "CLASSES": tile.classes, "FEATURES": tile.features}
    shape["PRODUCT_IN_FLOAT32"] = False
    first, other = (
        {"num_warps": warps, "num_stages": tile.num_stages}
        for warps in (tile.statistics_warps, tile.num_warps)
    )
    yield Variant("statistics", statistics_kernel, {**shape, "SUM_LOGITS": True}, first)
    yield Variant("tail", tail_kernel, shape, other)
    yield Variant("gradient", gradient_kernel, {**shape, "SUMS_FOR_BIAS": True}, other)
    merging = {"ROWS": MERGED_ROWS}
    if dtype == torch.float32:  # these see no other
        for rule in ("log", "power", "pseudospherical"):
            yield Variant(f"coefficients-{rule}", coefficient_kernel, {**merging, "RULE": rule}, {})
        yield Variant("add-tail", add_tail_kernel, merging, {})


def source(variant: Variant, dtype: torch.dtype) -> ASTSource:
    """Arrays aligned to 16 bytes, and features a multiple of 16, as launches mostly find them."""
    signature, aligned = {}, {}
    for index, name in enumerate(variant.kernel.arg_names):
        if name in variant.constants:
            signature[name] = "constexpr"
        elif name in FLOATS:
            signature[name] = "fp32"
        elif name == "target_ptr":
            signature[name] = "*i64"
        elif name.endswith("_ptr"):
            signature[name] = f"*{DTYPES[dtype] if name in OF_THE_LAYER else 'fp32'}"
        else:
            signature[name] = "i32"
        if name.endswith("_ptr") or name in ("num_features", "row_stride"):
            aligned[(index,)] = [["tt.divisibility", 16]]
    return ASTSource(variant.kernel, signature, variant.constants, aligned)


def resources(variant: Variant, dtype: torch.dtype, capability: tuple[int, int]) -> dict[str, Any]:
    target = GPUTarget("cuda", 10 * capability[0] + capability[1], 32)
    compiled = triton.compile(source(variant, dtype), target=target, options=variant.options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = {name: int(number) for name, number in re.findall(r"(REG|STACK):(\d+)", usage)}
    return {
        "kernel": variant.name,
        "capability": "{}.{}".format(*capability),
        "dtype": str(dtype).removeprefix("torch."),
        "registers": used["REG"],
        "stack_bytes": used["STACK"],
        "shared_bytes": compiled.metadata.shared,
        "warps": variant.options.get("num_warps", DEFAULT_WARPS),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=RESULTS)
    output = parser.parse_args().output
    kernels = [
        resources(variant, dtype, capability)
        for capability in CAPABILITIES
        for dtype in DTYPES
        for variant in variants(dtype, capability)
    ]
    lines = ",\n".join(f"  {json.dumps(kernel)}" for kernel in kernels)
    output.write_text(f'{{"triton": "{triton.__version__}", "kernels": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
