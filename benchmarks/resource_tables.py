"""What kernels take of a GPU, and their roofline bounds, as pages to read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from kernel_bounds import KernelBound
from kernel_work import STATED
from report import table

TRITON = """# What the Triton kernels take of a GPU

Written by `python benchmarks/triton_resources.py` (triton {triton}), from kernels compiled ahead of time. No
GPU was used, and nothing here is a measurement.
"""
CUDA = """# What the CUDA kernels take of a GPU

Written by `python benchmarks/cuda_resources.py` (nvcc {nvcc}), from kernels compiled ahead of time. No GPU
was used, and nothing here is a measurement.
"""
INTRODUCTION = """
- **Registers** are a thread's; **stack** is what they spilled, in bytes; **shared** is a {program}'s memory.
- **Occupancy** is the share of a multiprocessor's warps that are resident, by the rules of NVIDIA's
  cuda_occupancy.h, and what limits it.
- **Bounds**, in µs, are the least time that the work can take (roofline), and what sets it: the bytes, each
  counted once, at the rate of the GPU's memory; the FLOPs of products{products} at that of its
  matrix units; or the FLOPs of other kernels at its float32 rate. The rates are those of data sheets, which
  no program reaches: a kernel's time divided by its bound says how far it is from them.

A shape is one batch of one of these models: texts of so many tokens, two special ones counted, each once for
every other token.

{models}

{batches}

Another model and a larger vocabulary have bounds of their own where those depend on it. MB and GFLOP are
those at {stated} tokens.
"""
ATTENTION = """Kernels of hidden sizes that none of the models has have no bound. What is named after its
heads is there for attention alone. Attention computes whole tiles, of which a row of few tokens needs but a
part; its bound counts that part.
"""
ON_MATRIX_UNITS = " (float32 as three in tf32)"
BFLOAT16_ALONE = " in bfloat16"
RESOURCES = ("kernel", "dtype", "registers", "stack", "shared KiB", "warps", "occupancy", "limited by")
BOUNDS = ("kernel", "dtype", "model", "vocabulary", "MB", "GFLOP")
LEFT = {"kernel", "dtype", "limited by", "model"}
COLUMNS = {
    "num_heads": "heads",
    "text_length": "tokens of a text",
    "num_texts": "texts",
    "tokens": "tokens of all rows",
}
"""Whose names a shape has otherwise."""
Shapes = Sequence[dict[str, Any]]
"""As kernel_bounds describes them."""


def triton_page(report: dict[str, Any]) -> str:
    introduction = introduced(report["shapes"], "program", ON_MATRIX_UNITS)
    parts = [TRITON.format(triton=report["triton"]) + introduction + ATTENTION]
    for gpu in report["gpus"]:
        kernels = [one for one in report["kernels"] if one["capability"] == gpu["capability"]]
        parts += gpu_parts(gpu, kernels, report["shapes"])
    return "\n".join(parts)


def cuda_page(report: dict[str, Any]) -> str:
    introduction = introduced(report["shapes"], "block", BFLOAT16_ALONE)
    parts = [CUDA.format(nvcc=report["nvcc"]) + introduction]
    for gpu in report["gpus"]:
        kernels = report["kernels"]["sm_" + gpu["capability"].replace(".", "")]
        named = [{"kernel": name} | figures for name, figures in kernels.items()]
        parts += gpu_parts(gpu, named, report["shapes"])
    return "\n".join(parts)


def introduced(shapes: Shapes, program: str, products: str) -> str:
    return INTRODUCTION.format(
        program=program,
        products=products,
        models=of_shapes(shapes, "model", ("model", "hidden_size", "num_heads", "intermediate_size")),
        batches=of_shapes(shapes, "text_length", ("text_length", "num_texts", "rows", "tokens")),
        stated=STATED.text_length,
    )


def of_shapes(shapes: Shapes, key: str, names: Sequence[str]) -> str:
    """A row for each value of a key, on which the others depend."""
    one_of_each = {shape[key]: shape for shape in shapes}.values()
    columns = [COLUMNS.get(name, name.replace("_", " ")) for name in names]
    return table(columns, ([str(shape[name]) for name in names] for shape in one_of_each), left=LEFT)


def gpu_parts(gpu: dict[str, Any], kernels: Sequence[dict[str, Any]], shapes: Shapes) -> list[str]:
    lengths = sorted({shape["text_length"] for shape in shapes})
    columns = (*BOUNDS, *(f"{length} tokens" for length in lengths))
    rows = (row for kernel in kernels for row in bound_rows(kernel, shapes, lengths))
    return [
        f"## {gpu['name']}, compute capability {gpu['capability']}\n",
        f"{assumptions(gpu)}\n",
        table(RESOURCES, (resources(kernel) for kernel in kernels), left=LEFT) + "\n",
        table(columns, rows, left=LEFT) + "\n",
    ]


def assumptions(gpu: dict[str, Any]) -> str:
    rates = {
        name: gpu[name] / 1e12 for name in ("bytes_per_second", "half_flops", "tf32_flops", "float32_flops")
    }
    return (
        "Assumed: {bytes_per_second:g} TB/s; {half_flops:g} TFLOP/s in bfloat16 and float16, {tf32_flops:g}"
        " in tf32, {float32_flops:g} in float32 outside matrix units".format(**rates)
        + f" ({gpu['source']})."
    )


def resources(kernel: dict[str, Any]) -> list[str]:
    return [
        *(kernel["kernel"], kernel["dtype"], str(kernel["registers"]), str(kernel["stack_bytes"])),
        *(f"{kernel['shared_bytes'] / 1024:.1f}", str(kernel["warps"])),
        *(f"{100 * kernel['occupancy']:.0f}%", kernel["limited_by"]),
    ]


def bound_rows(kernel: dict[str, Any], shapes: Shapes, lengths: Sequence[int]) -> Iterable[list[str]]:
    """One for each model and vocabulary."""
    found: dict[tuple[str, int], dict[int, KernelBound]] = {}
    for bound in itertools.starmap(KernelBound, kernel["bounds"]):
        shape = shapes[bound.shape]
        found.setdefault((shape["model"], shape["vocab_size"]), {})[shape["text_length"]] = bound
    for (model, vocab_size), at in found.items():
        stated = at.get(STATED.text_length)
        counted = ["", ""]
        if stated is not None:
            flops = stated.matrix_flops + stated.vector_flops
            counted = [f"{stated.bytes / 1e6:.3f}", f"{flops / 1e9:.3f}"]
        times = [f"{at[n].us:.2f} {at[n].set_by}" if n in at else "" for n in lengths]
        yield [kernel["kernel"], kernel["dtype"], model, str(vocab_size), *counted, *times]
