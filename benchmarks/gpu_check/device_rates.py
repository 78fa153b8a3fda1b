"""The rate of torch's bfloat16 matrix products on this device, now: what others are shares of."""

from __future__ import annotations

import statistics
import time

import torch

SIZE, DRY_SIZE = 8192, 64
CALLS, WARM_UPS = 10, 3


def gemm_flops(dry: bool) -> float:
    """FLOP/s of a square product of random values, the median of several calls."""
    size, device = (DRY_SIZE, "cpu") if dry else (SIZE, "cuda")
    torch.manual_seed(0)
    x, w = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    seconds = []
    for _ in range(WARM_UPS + CALLS):
        if not dry:
            torch.cuda.synchronize()
        start = time.perf_counter()
        torch.mm(x, w)
        if not dry:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / statistics.median(seconds[WARM_UPS:])
