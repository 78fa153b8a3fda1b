"""The head kernel against torch, one thread: `python benchmarks/bench_head_kernel.py [--repeats N]`.

torch runs what a careful user writes: matmul, logsumexp and gather over chunks of rows. `matmul alone`
is torch's float32 product on the same shapes without any softmax, the ceiling. Runs are interleaved and
medians reported; no ratio is printed before the results agree with float64.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import mlmfast
from mlmfast import _core
from mlmfast.kernels.head import Head

SHAPES = [(256, 384, 30522), (64, 768, 30522), (256, 384, 20000), (32, 768, 50257), (1, 384, 30522)]
CHUNK_ROWS = 64
TOLERANCE = 1e-4


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def median_seconds(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median time of each, one call of every one per round so that noise falls on all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def bench_shape(num_rows: int, hidden_size: int, vocab_size: int, repeats: int) -> None:
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((num_rows, hidden_size), dtype=np.float32)
    weight = rng.standard_normal((vocab_size, hidden_size), dtype=np.float32) * np.float32(0.3)
    bias = rng.standard_normal(vocab_size, dtype=np.float32)
    ids = rng.integers(0, vocab_size, num_rows).astype(np.int32)
    offsets = np.arange(num_rows + 1, dtype=np.int64)
    heads = {isa: Head(weight, bias, isa=isa) for isa in _core.available_isas()}
    fastest = heads[_core.isa()]

    hidden_t, weight_t, bias_t = map(torch.from_numpy, (hidden, weight, bias))
    ids_t = torch.from_numpy(ids.astype(np.int64))[:, None]
    product = torch.empty(num_rows, vocab_size)

    def torch_log_probs() -> torch.Tensor:
        parts = []
        for start in range(0, num_rows, CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            logits = torch.addmm(bias_t, hidden_t[rows], weight_t.T)
            parts.append(logits.gather(1, ids_t[rows])[:, 0] - logits.logsumexp(dim=1))
        return torch.cat(parts)

    want = Head(weight, bias, impl="reference").score(hidden, ids, offsets).log_prob
    results = {isa: head.score(hidden, ids, offsets).log_prob for isa, head in heads.items()}
    results["torch"] = torch_log_probs().numpy()
    errors = {name: float(np.abs(log_probs - want).max()) for name, log_probs in results.items()}
    if not all(error <= TOLERANCE for error in errors.values()):
        raise SystemExit(
            f"results differ from float64 by more than {TOLERANCE}: {errors}; no times to report"
        )

    everything = {"outputs": ("log_prob", "rank", "entropy"), "top_k": 5}
    runs: dict[str, Callable[[], object]] = {
        f"mlmfast {isa}": lambda head=head: head.score(hidden, ids, offsets) for isa, head in heads.items()
    }
    runs[f"mlmfast {fastest.isa} + rank, entropy, top 5"] = lambda: fastest.score(
        hidden, ids, offsets, **everything
    )
    runs["torch matmul + logsumexp + gather"] = torch_log_probs
    runs["torch matmul alone"] = lambda: torch.mm(hidden_t, weight_t.T, out=product)
    seconds = median_seconds(runs, repeats)

    print(f"\nm={num_rows} H={hidden_size} V={vocab_size}   max error against float64: ", end="")
    print(", ".join(f"{name} {error:.1e}" for name, error in errors.items()))
    baseline = seconds["torch matmul + logsumexp + gather"]
    for name, time_taken in seconds.items():
        gflops = 2 * num_rows * hidden_size * vocab_size / time_taken / 1e9
        ratio = baseline / time_taken
        print(f"  {name:<42}{time_taken * 1e3:9.2f} ms {gflops:7.0f} GFLOP/s {ratio:6.2f}x torch")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    print(f"{cpu_name()}, {platform.system()} {platform.machine()}, 1 thread; features: ", end="")
    print(" ".join(_core.cpu_features()))
    print(f"mlmfast {mlmfast.__version__}, torch {torch.__version__}, numpy {np.__version__}, ", end="")
    print(f"Python {platform.python_version()}; medians of {repeats} interleaved runs")
    with torch.inference_mode():
        for shape in SHAPES:
            bench_shape(*shape, repeats)


if __name__ == "__main__":
    main()
