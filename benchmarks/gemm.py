"""torch's matrix products in one thread: `python gemm.py`.

Answers each line of standard input, {"dtype", "shape": [m, n, k], "calls"}, with {"gflops"}: the rate of
x @ w.T, x [m, k] and w [n, k], from the median time of `calls` calls.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from functools import cache

import torch


@cache
def operands(dtype: str, m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    return torch.randn(m, k).to(kind), torch.randn(n, k).to(kind)


def gflops(dtype: str, shape: tuple[int, int, int], calls: int) -> float:
    x, w = operands(dtype, *shape)
    seconds = []
    for _ in range(calls):
        start = time.perf_counter()
        torch.nn.functional.linear(x, w)
        seconds.append(time.perf_counter() - start)
    m, n, k = shape
    return 2e-9 * m * n * k / statistics.median(seconds)


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        with torch.inference_mode():
            rate = gflops(request["dtype"], tuple(request["shape"]), request["calls"])
        print(json.dumps({"gflops": rate}), flush=True)


if __name__ == "__main__":
    main()
