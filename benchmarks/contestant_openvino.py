"""OpenVINO's CPU plugin on the graph of export_graph.py."""

from __future__ import annotations

import argparse
from typing import Any

import openvino  # type: ignore[import-not-found,unused-ignore]
from contestant_batches import Batch, Score, UnavailableError, gathered_scorer
from numpy.typing import NDArray

MAX_BATCH_TOKENS = 2048
PRECISIONS = {"float32": openvino.Type.f32, "bfloat16": openvino.Type.bf16}


def load(options: argparse.Namespace) -> Score:
    wanted = PRECISIONS[options.precision]
    settings = {
        "INFERENCE_NUM_THREADS": 1,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": wanted,
    }
    model = openvino.Core().compile_model(options.graph, "CPU", settings)
    chosen = model.get_property("INFERENCE_PRECISION_HINT")
    if chosen != wanted:
        raise UnavailableError(f"OpenVINO runs in {chosen} on this CPU, not in {options.precision}")
    request = model.create_infer_request()

    def forward(batch: Batch) -> NDArray[Any]:
        inputs = {
            "input_ids": batch.input_ids,
            "positions": batch.positions,
            "target_ids": batch.target_ids,
        }
        log_probs: NDArray[Any] = request.infer(inputs)["log_probs"]
        return log_probs

    return gathered_scorer(options.folder, forward, options.max_batch_tokens or MAX_BATCH_TOKENS)
