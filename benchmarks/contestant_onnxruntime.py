"""ONNX Runtime's CPU provider on the graph of export_graph.py."""

from __future__ import annotations

import argparse
from typing import Any

import onnxruntime  # type: ignore[import-not-found,unused-ignore]
from contestant_batches import Batch, Score, gathered_scorer
from numpy.typing import NDArray

MAX_BATCH_TOKENS = 2048


def load(options: argparse.Namespace) -> Score:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(options.graph, settings, providers=["CPUExecutionProvider"])

    def forward(batch: Batch) -> NDArray[Any]:
        inputs = {
            "input_ids": batch.input_ids,
            "positions": batch.positions,
            "target_ids": batch.target_ids,
        }
        log_probs: NDArray[Any] = session.run(["log_probs"], inputs)[0]
        return log_probs

    return gathered_scorer(options.folder, forward, options.max_batch_tokens or MAX_BATCH_TOKENS)
