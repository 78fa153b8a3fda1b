"""What kernels take of a GPU, and their roofline bounds, as pages to read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

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

A shape is one batch of BERT-base (hidden size {hidden_size}, {num_heads} heads, intermediate size
{intermediate_size}): texts of so many tokens, two special ones counted, each once for every other token.

{batches}

A larger vocabulary has bounds of its own where they depend on it. MB and GFLOP are those at {stated} tokens.
"""
ATTENTION = """Kernels of other sizes than BERT-base's have no bound. Attention computes whole tiles, of
which a row of few tokens needs but a part; its bound counts that part.
"""
ON_MATRIX_UNITS = " (float32 as three in tf32)"
BFLOAT16_ALONE = " in bfloat16"
RESOURCES = ("kernel", "dtype", "registers", "stack", "shared KiB", "warps", "occupancy", "limited by")
LEFT = {"kernel", "dtype", "limited by"}


def triton_page(report: dict[str, Any]) -> str:
    introduction = introduced(report["shapes"], "program", ON_MATRIX_UNITS)
    parts = [TRITON.format(triton=report["triton"]) + introduction + ATTENTION]
    for gpu in report["gpus"]:
        parts += gpu_parts(gpu, [one for one in report["kernels"] if one["capability"] == gpu["capability"]])
    return "\n".join(parts)


def cuda_page(report: dict[str, Any]) -> str:
    introduction = introduced(report["shapes"], "block", BFLOAT16_ALONE)
    parts = [CUDA.format(nvcc=report["nvcc"]) + introduction]
    for gpu in report["gpus"]:
        kernels = report["kernels"]["sm_" + gpu["capability"].replace(".", "")]
        parts += gpu_parts(gpu, [{"kernel": name} | figures for name, figures in kernels.items()])
    return "\n".join(parts)


def introduced(shapes: Sequence[dict[str, Any]], program: str, products: str) -> str:
    sizes = {shape["text_length"]: shape for shape in shapes}
    columns = ("tokens of a text", "texts", "rows", "tokens of all rows")
    batches = table(
        columns,
        (
            [str(length), *(str(shape[name]) for name in ("num_texts", "rows", "tokens"))]
            for length, shape in sizes.items()
        ),
        left=LEFT,
    )
    names = {"program": program, "products": products, "batches": batches, "stated": STATED.text_length}
    return INTRODUCTION.format(**names, **shapes[0])


def gpu_parts(gpu: dict[str, Any], kernels: Sequence[dict[str, Any]]) -> list[str]:
    bounded = [kernel for kernel in kernels if kernel["bounds"]]
    lengths = sorted({bound["text_length"] for kernel in bounded for bound in kernel["bounds"]})
    columns = ("kernel", "dtype", "vocabulary", "MB", "GFLOP", *(f"{length} tokens" for length in lengths))
    return [
        f"## {gpu['name']}, compute capability {gpu['capability']}\n",
        f"{assumptions(gpu)}\n",
        table(RESOURCES, (resources(kernel) for kernel in kernels), left=LEFT) + "\n",
        table(columns, (row for kernel in bounded for row in bound_rows(kernel, lengths)), left=LEFT) + "\n",
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


def bound_rows(kernel: dict[str, Any], lengths: Sequence[int]) -> Iterable[list[str]]:
    """One for each vocabulary."""
    for vocab_size in dict.fromkeys(bound["vocab_size"] for bound in kernel["bounds"]):
        at = {bound["text_length"]: bound for bound in kernel["bounds"] if bound["vocab_size"] == vocab_size}
        stated = at.get(STATED.text_length)
        counted = ["", ""]
        if stated is not None:
            flops = stated["matrix_flops"] + stated["vector_flops"]
            counted = [f"{stated['bytes'] / 1e6:.3f}", f"{flops / 1e9:.3f}"]
        times = [f"{at[n]['bound_us']:.2f} {at[n]['bound_by']}" if n in at else "" for n in lengths]
        yield [kernel["kernel"], kernel["dtype"], str(vocab_size), *counted, *times]
