"""What the timings of the packed engine compare, as workers run it.

All score the same masked copies in bfloat16, but for the reference. Batches are made beforehand and lie in
the host's memory: what is timed begins with their copy to the device and ends with log-probabilities on the
host.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from absent import AbsentError
from executed_flops import BatchCounts, executed_flops
from flops import EncoderSize
from onnx_runtime import onnx_runtime
from packed_batches import Scores
from packed_peers import Gathered, Padded, Unpadded

import mlmfast
from mlmfast.engines import Outputs
from mlmfast.export import export_model

NUM_COMPARED = 256


class Contestant(Protocol):
    def load(self, folder: str, device: str) -> None:
        """Raises AbsentError."""

    def prepare(self, texts: Sequence[str]) -> None: ...

    def score(self) -> Scores:
        """Of every token of every text that is not special, masked alone."""

    def details(self) -> dict[str, str]:
        """What a result says of it."""

    def executed_flops(self) -> int | None:
        """Of one scoring, where they are counted."""


class Ours:
    """One of our engines on the batches of its own scheduling."""

    def load(self, folder: str, device: str) -> None:
        self._folder = folder
        self._scorer = mlmfast.load(folder, engine="packed", precision="bfloat16", device=device)

    def prepare(self, texts: Sequence[str]) -> None:
        window = self._scorer.prepare(texts)
        self._batches = [window.batch(indices) for indices in window.batches]
        self._num_tokens = len(window.input_ids)
        self._slots = np.sort(np.concatenate([slots for _, slots in self._batches]))

    def score(self) -> Scores:
        log_probs = np.full(self._num_tokens, np.nan, dtype=np.float32)
        for batch, slots in self._batches:
            log_probs[slots] = self._scorer.engine.score(batch, Outputs()).log_prob
        return log_probs[self._slots]

    def details(self) -> dict[str, str]:
        described = self._scorer.engine.describe()
        return {name: str(described[name]) for name in ("impl", "precision") if name in described}

    def executed_flops(self) -> int | None:
        size = EncoderSize.of(Path(self._folder))
        return sum(executed_flops(size, BatchCounts.of(batch)) for batch, _ in self._batches)


class FromTexts(Ours):
    """With everything that comes before and after, from strings to results."""

    def prepare(self, texts: Sequence[str]) -> None:
        super().prepare(texts)
        self._texts = list(texts)

    def score(self) -> Scores:
        results = self._scorer.score(self._texts)
        return np.array([t.log_prob for result in results for t in result.tokens], dtype=np.float32)


class OnnxRuntime(Ours):
    """A masked export on the CUDA provider, with IO binding; in a dry run on the CPU's."""

    def __init__(self, precision: str = "float16") -> None:
        self._precision = precision

    def load(self, folder: str | None, device: str) -> None:
        """folder: None is the embedded model. Raises AbsentError."""
        onnx_runtime(device)
        with tempfile.TemporaryDirectory() as scratch:
            graph = Path(scratch) / "graph"
            export_model(folder, kind="masked", output=graph, precision=self._precision)
            self._scorer = mlmfast.load(graph, engine="onnx", device=device)

    def executed_flops(self) -> int | None:
        return None


REFERENCE = "reference"
OURS = "mlmfast packed"
PADDED, GATHERED = "Hugging Face padded, all logits", "Hugging Face gathered and sorted"
COMPILED = f"{GATHERED}, compiled"
ONNX = "ONNX Runtime"
FIELD = {
    OURS: Ours,
    f"{OURS}, from texts": FromTexts,
    PADDED: Padded,
    GATHERED: Gathered,
    COMPILED: partial(Gathered, compiled=True),
    "Hugging Face unpadded": Unpadded,
    ONNX: OnnxRuntime,
}
KINDS = FIELD | {REFERENCE: partial(Gathered, dtype=torch.float32)}

loaded: dict[str, tuple[str, Contestant]] = {}
"""By name, the folder of the model and the contestant that holds it."""


def prepare(name: str, folder: str, texts: Sequence[str], device: str) -> dict[str, Any]:
    """Loads the model unless it is there, makes the batches, and scores once, which compiles what there is to
    compile. Gives the first log-probabilities, or why the contestant is absent."""
    if device != "cpu":
        torch.backends.cuda.matmul.allow_tf32 = False
    try:
        if name not in loaded or loaded[name][0] != folder:
            loaded.pop(name, None)
            gc.collect()
            contestant: Contestant = KINDS[name]()
            contestant.load(folder, device)
            loaded[name] = folder, contestant
    except AbsentError as error:
        return {"absent": str(error)}
    contestant = loaded[name][1]
    contestant.prepare(texts)
    scores = contestant.score()
    return {
        "log_probs": scores[:NUM_COMPARED].tolist(),
        "num_scores": len(scores),
        "details": contestant.details(),
        "executed_flops": contestant.executed_flops(),
    }


def timed(name: str, device: str) -> dict[str, Any]:
    """One scoring of what was prepared last; peak memory with the weights, as torch's allocator counts it."""
    contestant = loaded[name][1]
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    contestant.score()
    seconds = time.perf_counter() - start
    peak_mb = None if device == "cpu" else torch.cuda.max_memory_allocated() >> 20
    return {"seconds": seconds, "peak_mb": peak_mb or None}


def release(device: str) -> None:
    """Memory that torch keeps but does not use goes back to the device."""
    if device != "cpu":
        torch.cuda.empty_cache()
