"""The rate of the best large bfloat16 GEMM on this machine, now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from engine_field import ROOT
from processes import Process

LARGE = ((1024, 1024, 1024), (2048, 2048, 2048), (2048, 3072, 768), (2048, 768, 3072))
SMALL = ((512, 1152, 384), (512, 384, 384), (512, 1536, 384), (512, 384, 1536))
"""Rows m, weight [n, k]."""
SHORT_FLOPS = 2e10
"""What one measurement takes at least, in as many calls as that needs, and no fewer than three."""
MATRIX_BENCH = ROOT / "build" / "cpp" / "matrix_bench"


class Gemms:
    """A process of torch GEMMs in one thread. A context manager."""

    def __init__(self) -> None:
        self._process = Process("GEMM", Path(sys.executable), "gemm.py", [])

    def rate(self, dtype: str, shape: tuple[int, int, int]) -> float:
        """Median GFLOP/s of products of one shape."""
        m, n, k = shape
        calls = max(3, int(SHORT_FLOPS / (2 * m * n * k)))
        found: float = self._process.ask({"dtype": dtype, "shape": shape, "calls": calls})["gflops"]
        return found

    def best(self) -> float:
        """Of the large bfloat16 products, the fastest's GFLOP/s."""
        return max(self.rate("bfloat16", shape) for shape in LARGE)

    def quick(self) -> float:
        """Of one of them, in some 20 ms."""
        return self.rate("bfloat16", LARGE[0])

    def table(self) -> str:
        lines = ["| torch, m x n x k | bfloat16 GFLOP/s | float32 GFLOP/s |", "|---|---:|---:|"]
        for shape in (*SMALL, *LARGE):
            rates = " | ".join(f"{self.rate(dtype, shape):,.0f}" for dtype in ("bfloat16", "float32"))
            lines.append(f"| {' x '.join(map(str, shape))} | {rates} |")
        return "\n".join(lines)

    def __enter__(self) -> Gemms:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()


def matrix_bench(isa: str) -> str:
    """The output of our own benchmark of products on an instruction set, where it is built."""
    name = MATRIX_BENCH.relative_to(ROOT)
    if not MATRIX_BENCH.exists():
        return f"- our own products: not available: {name} is not built, see `make test-cpp`"
    ran = subprocess.run([MATRIX_BENCH, isa], capture_output=True, text=True, check=True)
    return f"Our own, `{name} {isa}`, GFLOP/s:\n\n```\n{ran.stdout.rstrip()}\n```"
