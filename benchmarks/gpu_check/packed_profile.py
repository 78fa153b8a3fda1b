"""Where a batch's time goes in the packed engine: how long the device waits for launches, and each kernel
beside its roofline bound (kernel_work.py and the data sheet's rates of roofline.py).

BERT-base in bfloat16 over texts of 32 tokens, special ones counted, all words different, in one batch.
step_ms is the median without a profiler. idle_share is the time between the first and the last kernel of a
step in which none runs, of_step the time of a step in which no kernel runs. us is all launches of a step,
longest_us one launch over all tokens, of_bound the bound over that; not_launched names kernels with a bound
that no step had. products: all kernels without a bound, torch's matrix products nearly all of their time,
beside the FLOPs that are left of them after what the engine shares and leaves out, at the measured rate of
products.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from device_rates import gemm_flops
from executed_flops import BatchCounts, product_flops
from flops import EncoderSize
from kernel_spans import busy_and_idle, durations, longest, spans_of
from kernel_work import STATED, Shape, works
from roofline import GPUS, Gpu, bound
from timing_cells import Model, Size, single_token_words

import mlmfast
from mlmfast.engines import Outputs

SHAPE = replace(STATED, num_texts=64)
"""61440 tokens in 1920 rows, as many different words."""
DRY_SHAPE = Shape(
    num_texts=2,
    text_length=4,
    hidden_size=32,
    num_heads=2,
    intermediate_size=128,
    vocab_size=500,
    half_window=64,
)
LAYERS, DRY_LAYERS = 12, 2
WARM_UPS, STEPS, PROFILED = 5, 20, 3
MOST_KERNELS, DRY_KERNELS = 30, 3
"""Of which figures are given."""


def run(dry: bool, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    shape, num_layers = (DRY_SHAPE, DRY_LAYERS) if dry else (SHAPE, LAYERS)
    size = Size("profiled", num_layers, shape.hidden_size, shape.num_heads, shape.tokens)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Model(size, shape.vocab_size).save(Path(scratch), "cpu" if dry else "cuda")
        step = make_step(folder, shape, "cpu" if dry else "cuda")
        for _ in range(1 if dry else WARM_UPS):
            step()
        step_us = 1e6 * statistics.median(seconds_of(step) for _ in range(1 if dry else STEPS))
        profiles = [spans_of(step, dry) for _ in range(1 if dry else PROFILED)]
    times = [busy_and_idle(spans) for spans in profiles]
    busy_us = statistics.median(busy for busy, _ in times)
    bounds = bounds_of(shape, dry)
    by_kernel = durations(profiles[-1])
    products_us = sum(sum(taken) for name, taken in by_kernel.items() if name not in bounds)
    rate = gemm_flops(dry)
    return {
        "tokens": shape.tokens,
        "step_ms": round(step_us / 1e3, 3),
        "launches": len(profiles[-1]),
        "idle_share": round(statistics.median(idle / (busy + idle) for busy, idle in times), 4),
        "of_step": round(1 - busy_us / step_us, 4),
        "products": {"us": round(products_us, 2)}
        | beside(
            products_us, product_flops(*size_and_counts(shape, num_layers)) / rate * 1e6, "matrix units"
        ),
        "not_launched": sorted(bounds.keys() - by_kernel.keys()),
        "kernels": {
            name: kernel_figures(taken, bounds.get(name))
            for name, taken in list(by_kernel.items())[: DRY_KERNELS if dry else MOST_KERNELS]
        },
    }


def make_step(folder: Path, shape: Shape, device: str) -> Callable[[], object]:
    """One batch through the engine."""
    words = iter(random.Random(0).sample(single_token_words(folder), shape.rows))
    texts = [" ".join(next(words) for _ in range(shape.text_length - 2)) for _ in range(shape.num_texts)]
    scorer = mlmfast.load(
        folder,
        engine="packed",
        precision="bfloat16",
        device=device,
        workers=1,
        max_batch_tokens=shape.tokens,
    )
    window = scorer.prepare(texts)
    if len(window.batches) != 1:
        raise RuntimeError(f"expected one batch of {shape.tokens} tokens, got {len(window.batches)}")
    batch, _ = window.batch(window.batches[0])
    return lambda: scorer.engine.score(batch, Outputs())


def seconds_of(step: Callable[[], object]) -> float:
    """Results are on the host at the end."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def bounds_of(shape: Shape, dry: bool) -> dict[str, tuple[float, str]]:
    """Microseconds and what sets them, by the name of a Triton kernel of ours; none for a GPU whose data
    sheet roofline.py lacks."""
    gpu = gpu_here(dry)
    if gpu is None:
        return {}
    known = works(shape, torch.bfloat16, gpu)
    bounds = {
        kernel: bound(known[name], torch.bfloat16, gpu) for kernel, name in variant_names(shape).items()
    }
    return {kernel: (1e6 * least.seconds, least.set_by) for kernel, least in bounds.items()}


def variant_names(shape: Shape) -> dict[str, str]:
    """By the name of a kernel, which of kernel_compilation.all_variants a batch launches."""
    hidden, head_size = shape.hidden_size, shape.hidden_size // shape.num_heads
    return {
        "text_index_kernel": "text-index",
        "mask_index_kernel": "mask-index",
        "embed_kernel": f"embed-shared-{hidden}",
        "expand_kernel": "expand",
        "attention_kernel": f"attention-{head_size}",
        "add_norm_kernel": f"add-norm-post-{hidden}",
        "activation_kernel": "gelu",
        "target_sweep_kernel": "target-sweep",
        "row_kernel": "row",
        "score_kernel": "score-log",
    }


def gpu_here(dry: bool) -> Gpu | None:
    if dry:
        return GPUS[-1]
    capability = torch.cuda.get_device_capability()
    return next((gpu for gpu in GPUS if gpu.capability == capability), None)


def size_and_counts(shape: Shape, num_layers: int) -> tuple[EncoderSize, BatchCounts]:
    """What executed_flops counts with."""
    size = EncoderSize(num_layers, shape.hidden_size, shape.intermediate_size, shape.vocab_size)
    pairs, place_pairs = shape.tokens * shape.text_length, shape.rows * shape.text_length
    return size, BatchCounts(shape.pool, shape.tokens, shape.rows, pairs, place_pairs)


def kernel_figures(taken: list[float], least: tuple[float, str] | None) -> dict[str, Any]:
    found = {"launches": len(taken), "us": round(sum(taken), 2), "longest_us": round(longest(taken), 2)}
    return found if least is None else found | beside(longest(taken), *least)


def beside(microseconds: float, bound_us: float, set_by: str) -> dict[str, Any]:
    """A bound, and its share of a time."""
    return {
        "bound_us": round(bound_us, 3),
        "bound_by": set_by,
        "of_bound": float(f"{bound_us / microseconds:.3g}"),
    }
