"""The torch engine with the embedded model on this GPU: its scores against a plain loop's, and its speed."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from contestant import plain_loop
from texts import BLIMP, INAUGURAL, read_sentences

import mlmfast
from mlmfast.models.source import EMBEDDED_FOLDER

TOLERANCES = {"float32": 1e-3, "bfloat16": 0.2}
"""Per log-probability: rounding in other places than on a CPU; bfloat16 inputs to the products."""
NUM_COMPARED, NUM_SENTENCES, NUM_LINES = 20, 130, 400
DRY_NUM_COMPARED, DRY_NUM_SENTENCES, DRY_NUM_LINES = 1, 2, 2
ROUNDS, DRY_ROUNDS = 3, 1


def run(dry: bool, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    sentences = read_sentences(BLIMP, DRY_NUM_SENTENCES if dry else NUM_SENTENCES, seed=0)
    lines = INAUGURAL.read_text(encoding="utf-8").splitlines()
    texts = sentences + lines[: DRY_NUM_LINES if dry else NUM_LINES]
    compared = texts[: DRY_NUM_COMPARED if dry else NUM_COMPARED]
    wanted = plain_loop(argparse.Namespace(folder=str(EMBEDDED_FOLDER)))(compared)
    found: dict[str, Any] = {}
    for precision, tolerance in TOLERANCES.items():
        found[precision] = scored(precision, texts, wanted, dry)
        save(found)
        if not found[precision]["largest_difference"] <= tolerance:
            found["error"] = f"{precision}: expected scores within {tolerance} of the plain loop's"
    return found


def scored(precision: str, texts: list[str], wanted: list[list[float]], dry: bool) -> dict[str, Any]:
    """Figures of one precision; wanted: the log-probabilities of the tokens of the first texts."""
    with mlmfast.load(engine="torch", device="cpu" if dry else "cuda", precision=precision) as scorer:
        results = list(scorer.score(texts))
        seconds = []
        for _ in range(DRY_ROUNDS if dry else ROUNDS):
            start = time.perf_counter()
            list(scorer.score(texts))
            seconds.append(time.perf_counter() - start)
    differences = [
        abs(token.log_prob - log_prob)
        for result, log_probs in zip(results, wanted, strict=False)
        for token, log_prob in zip(result.tokens, log_probs, strict=True)
    ]
    num_tokens = sum(len(result.tokens) for result in results)
    return {
        "texts": len(texts),
        "tokens": num_tokens,
        "tokens_per_second": round(num_tokens / min(seconds)),
        "largest_difference": max(differences),
        "peak_mb": None if dry else torch.cuda.max_memory_allocated() >> 20,
    }
