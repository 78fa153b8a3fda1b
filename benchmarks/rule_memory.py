"""Memory of a loss and its gradients beyond inputs, gradients and one float32 accumulator like the input.

`python benchmarks/rule_memory.py NAME N D V DTYPE` prints that of one contestant, in MB.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch
from rule_peers import Shape, losses, make_problem

RULE = "log"
MEGABYTE = 2**20
WARM_UP = Shape(8, 8, 8)


def status_mb(field: str) -> float:
    """A field of this process's status in MB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))


def measure(name: str, shape: Shape, dtype: torch.dtype) -> float:
    """Of the second call of the process; a tiny first one has loaded the libraries."""
    loss = dict(losses(RULE))[name]
    loss(make_problem(WARM_UP, dtype)).backward()
    problem = make_problem(shape, dtype)
    before = status_mb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew
    loss(problem).backward()
    gradients = sum(leaf.grad.nbytes for leaf in problem.leaves if leaf.grad is not None)
    accumulator = 4 * problem.input.numel()
    beyond: float = status_mb("VmHWM") - before - (gradients + accumulator) / MEGABYTE
    return beyond


def memory_table(shape: Shape, dtype: torch.dtype) -> str:
    lines = [
        "| contestant | MB beyond inputs, gradients and an accumulator | of the float32 logits |",
        "|---|---:|---:|",
    ]
    for name, _ in losses(RULE):
        command = [
            sys.executable,
            __file__,
            name,
            *map(str, (shape.num_rows, shape.num_features, shape.vocab_size)),
        ]
        command.append(str(dtype).removeprefix("torch."))
        megabytes = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        lines.append(f"| {name} | {megabytes:.1f} | {megabytes / shape.logits_mb:.1%} |")
    return "\n".join(lines)


def main() -> None:
    torch.set_num_threads(1)
    name, *sizes, dtype = sys.argv[1:]
    print(measure(name, Shape(*map(int, sizes)), getattr(torch, dtype)))


if __name__ == "__main__":
    main()
