"""triton-resources.json as a page to read."""

from __future__ import annotations

from typing import Any

INTRODUCTION = """# What the Triton kernels take of a GPU

Written by `python benchmarks/triton_resources.py` (triton {triton}), from kernels compiled ahead of time. No
GPU was used, and nothing here is a measurement.

- **Registers** are a thread's; **stack** is what they spilled, in bytes; **shared** is a program's memory.
- **Occupancy** is the share of a multiprocessor's warps that are resident, by the rules of NVIDIA's
  cuda_occupancy.h, and what limits it.
- **Bound** is the least time that the work can take (roofline): the bytes, each counted once, at the rate of
  the GPU's memory; the FLOPs of products at that of its matrix units (float32 as three tf32 products), or of
  elementwise kernels at its float32 rate; whichever takes longest. The rates are those of data sheets, which
  no program reaches: a kernel's time divided by its bound says how far it is from them. Sizes other than the
  stated shape's have no bound.

The stated shape is one batch of BERT-base: {num_texts} texts of {text_length} tokens, each once for every
token but the two special ones, which makes {tokens} tokens in {rows} rows; hidden size {hidden_size},
{num_heads} heads, intermediate size {intermediate_size}, vocabulary {vocab_size}. Attention computes whole
tiles, of which a row of {text_length} tokens needs but a part; its bound counts that part.
"""
COLUMNS = (
    *("kernel", "dtype", "registers", "stack", "shared KiB", "warps", "occupancy", "limited by"),
    *("MB", "GFLOP", "bound µs", "bound by"),
)
RIGHT = {"registers", "stack", "shared KiB", "warps", "occupancy", "MB", "GFLOP", "bound µs"}


def page(report: dict[str, Any]) -> str:
    parts = [INTRODUCTION.format(triton=report["triton"], **report["shape"])]
    for gpu in report["gpus"]:
        lines = [f"## {gpu['name']}, compute capability {gpu['capability']}", "", assumptions(gpu), ""]
        lines.append(line(COLUMNS))
        lines.append(line("---:" if column in RIGHT else "---" for column in COLUMNS))
        lines += [
            line(cells(kernel)) for kernel in report["kernels"] if kernel["capability"] == gpu["capability"]
        ]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def assumptions(gpu: dict[str, Any]) -> str:
    rates = {
        name: gpu[name] / 1e12 for name in ("bytes_per_second", "half_flops", "tf32_flops", "float32_flops")
    }
    return (
        "Assumed: {bytes_per_second:g} TB/s; {half_flops:g} TFLOP/s in bfloat16 and float16, {tf32_flops:g}"
        " in tf32, {float32_flops:g} in float32 outside matrix units".format(**rates)
        + f" ({gpu['source']})."
    )


def cells(kernel: dict[str, Any]) -> list[str]:
    taken = [
        *(kernel["kernel"], kernel["dtype"], str(kernel["registers"]), str(kernel["stack_bytes"])),
        *(f"{kernel['shared_bytes'] / 1024:.1f}", str(kernel["warps"])),
        *(f"{100 * kernel['occupancy']:.0f}%", kernel["limited_by"]),
    ]
    if "bytes" not in kernel:
        return [*taken, "", "", "", ""]
    flops = kernel["matrix_flops"] + kernel["vector_flops"]
    return [
        *taken,
        *(f"{kernel['bytes'] / 1e6:.3f}", f"{flops / 1e9:.3f}"),
        *(f"{kernel['bound_us']:.2f}", kernel["bound_by"]),
    ]


def line(texts: Any) -> str:
    return f"| {' | '.join(texts)} |"
