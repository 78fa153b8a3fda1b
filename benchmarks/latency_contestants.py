"""The ways to score one text that bench_latency.py times: a text to the log-probabilities of its tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForMaskedLM, AutoTokenizer

import mlmfast
from mlmfast.engines.torch_load import quiet_transformers
from mlmfast.extras import require

GRAPH_OUTPUTS = ("log_probs", "token_scores", "score")
"""What is read of a graph: the first of these that it has."""

ScoreText = Callable[[str], list[float]]


def by_mlmfast(model: Path | str | None, engine: str, precision: str | None) -> ScoreText:
    """The Python façade, tokenization and all, one worker."""
    scorer = mlmfast.load(model, engine=engine, precision=precision, workers=1)
    masking = scorer.default_masking

    def score(text: str) -> list[float]:
        (result,) = scorer.score([text], masking)
        return log_probs_of(result)

    return score


def log_probs_of(result: mlmfast.TextScore) -> list[float]:
    """Those of the tokens; of a student with head `cls`, which gives none, the score alone."""
    if result.columns is None:
        assert result.score is not None
        return [result.score]
    return [float(log_prob) for log_prob in result.columns.log_probs]


def huggingface(folder: Path, *, batched: bool) -> ScoreText:
    """As code without a scoring library does it: logits at every position of each masked copy, all copies in
    one forward, or one after the other."""
    with quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval()

    def score(text: str) -> list[float]:
        encoded = tokenizer(text, return_special_tokens_mask=True, return_tensors="pt")
        ids = encoded["input_ids"][0]
        targets = (encoded["special_tokens_mask"][0] == 0).nonzero()[:, 0]
        copies = ids.repeat(len(targets), 1)
        copies[torch.arange(len(targets)), targets] = tokenizer.mask_token_id
        found: list[float] = []
        with torch.inference_mode():
            at_once = len(copies) if batched else 1
            for part, places in zip(torch.split(copies, at_once), torch.split(targets, at_once), strict=True):
                log_probs = model(input_ids=part).logits.log_softmax(dim=-1)  # [rows, length, V]
                found += log_probs[torch.arange(len(part)), places, ids[places]].tolist()
        return found

    return score


def onnx_graph(folder: Path) -> ScoreText:
    """ONNX Runtime without mlmfast: an exported graph `pll` or `single-pass`."""
    onnxruntime = require("onnxruntime", extra="onnx", purpose="an exported graph")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    outputs = [made.name for made in session.get_outputs()]
    name = next(name for name in GRAPH_OUTPUTS if name in outputs)
    inputs = {given.name: len(given.shape) for given in session.get_inputs()}

    def score(text: str) -> list[float]:
        encoded = tokenizer.encode(text)
        ids = np.array(encoded.ids, dtype=np.int64)
        columns: dict[str, Any] = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        feeds = {key: columns[key][None] if rank == 2 else columns[key] for key, rank in inputs.items()}
        values = session.run([name], feeds)[0].reshape(-1)
        if len(values) == len(ids):
            values = values[np.array(encoded.special_tokens_mask) == 0]
        return [float(value) for value in values]

    return score
