"""Exported graphs in ONNX Runtime's CUDA provider with IO binding, against the native engine in float32.

The embedded model as `mlmfast export` writes it: masked graphs as the timings run them, and pll graphs,
which programs embed, a sentence a call. Where ONNX Runtime, its CUDA provider or what exports is absent, that
is said. A dry run takes a tiny model and the CPU's provider.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absent import AbsentError
from core_build import ROOT
from onnx_runtime import onnx_runtime
from packed_contestants import OnnxRuntime
from packed_scores import log_probs
from texts import BLIMP, read_sentences

from mlmfast.export import export_model
from mlmfast.models.checkpoint import GRAPH
from mlmfast.scorer import open_model

TINY = str(ROOT / "tests" / "data" / "models" / "bert")
BOUNDS = {"float32": 1e-3, "float16": 0.05}
"""The CUDA provider multiplies float32 in TF32 unless told otherwise, which the engine and by_sentence do."""
NUM_SENTENCES = 50


def run(dry: bool, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    model, device = (TINY, "cpu") if dry else (None, "cuda")
    try:
        onnx_runtime(device)
    except AbsentError as error:
        return {"absent": str(error)}
    found: dict[str, Any] = {}
    sentences = ["We the people."] if dry else read_sentences(BLIMP, NUM_SENTENCES, seed=0)
    texts = {"original": sentences}
    wanted = log_probs(model, texts, engine="native", precision="float32", device="cpu")
    exact = np.concatenate(wanted["original"])
    for precision, bound in list(BOUNDS.items())[: 1 if dry else 2]:
        for kind, score in (("masked", by_contestant), ("pll", by_sentence)):
            scores = score(model, sentences, precision, device)
            worst = float(np.abs(scores - exact).max())
            found[f"{kind} {precision}"] = {"largest_difference": worst, "bound": bound}
            if not worst <= bound:
                found["error"] = f"{kind} {precision}: expected scores within {bound}"
            save(found)
    return found


def by_contestant(model: str | None, sentences: Sequence[str], precision: str, device: str) -> np.ndarray:
    contestant = OnnxRuntime(precision)
    contestant.load(model, device)
    contestant.prepare(sentences)
    return contestant.score()


def by_sentence(model: str | None, sentences: Sequence[str], precision: str, device: str) -> np.ndarray:
    onnxruntime = onnx_runtime(device)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "graph"
        export_model(model, kind="pll", output=folder, precision=precision)
        providers = [("CPUExecutionProvider", {})]
        if device != "cpu":
            providers.insert(0, ("CUDAExecutionProvider", {"use_tf32": "0"}))
        session = onnxruntime.InferenceSession(str(folder / GRAPH), providers=providers)
        tokenizer = open_model(folder).tokenizer
    scores = []
    for sentence in sentences:
        binding = session.io_binding()
        input_ids = tokenizer.encode([sentence]).input_ids.astype(np.int64)
        binding.bind_ortvalue_input(
            "input_ids", onnxruntime.OrtValue.ortvalue_from_numpy(input_ids, device, 0)
        )
        binding.bind_output("log_probs", device)
        session.run_with_iobinding(binding)
        scores.append(binding.copy_outputs_to_cpu()[0])
    return np.concatenate(scores)
