"""The packed engine on this GPU against the native engine in float32 on the CPU.

Every family of models under every masking, from the tests' tiny models, whose random weights magnify
rounding; and the embedded model on sentences. largest and mean are of differences of log-probabilities,
rank_flips the share of pairs of texts whose order changes. A worker scores, each model and precision in a
call of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from core_build import ROOT
from packed_scores import log_probs
from texts import BLIMP, INAUGURAL, read_sentences
from worker import Worker, WorkerError

MODELS = ROOT / "tests" / "data" / "models"
ENGLISH = (
    "We have met with fellow-citizens who, unlike others, never read it.",
    "A",
    "The people of the nation shall be governed by the principles of union and liberty and of peace.",
)
PROTEINS = ("QVHLQESGPGLVKPSETLS", "M", "GQWRTYQVHLQESGPGLVKPSETLSLTCAVSGDSIKNNYWSWIRQP")
FAMILIES = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "distilbert"), ENGLISH),
    **dict.fromkeys(("electra", "albert", "modernbert"), ENGLISH),
    **dict.fromkeys(("esm2", "sapiens-vh"), PROTEINS),
}
"""Folders of MODELS, and what each scores."""
MASKINGS = ("original", "word_l2r", "whole_word", "stride:3", "none")
TINY_BOUNDS = {"float32": 1e-4, "bfloat16": 0.3, "float16": 0.05}
BOUNDS = {"float32": 1e-4, "bfloat16": 0.1, "float16": 0.02}
"""As in tests/packed/test_packed_engine.py."""
CALL_SECONDS = 60
NUM_SENTENCES, NUM_LINES = 130, 12


@dataclass(frozen=True)
class Sizes:
    families: dict[str, Sequence[str]]
    maskings: Sequence[str]
    precisions: Sequence[str]
    sentences: Sequence[str]


def sizes(dry: bool) -> Sizes:
    if dry:
        return Sizes({"bert": ("We the people",)}, ("original", "none"), ("float32",), ("He left.", "No."))
    lines = INAUGURAL.read_text(encoding="utf-8").splitlines()[:NUM_LINES]
    sentences = read_sentences(BLIMP, NUM_SENTENCES, seed=0) + lines
    return Sizes(FAMILIES, MASKINGS, tuple(BOUNDS), sentences)


def run(dry: bool, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    chosen, device = sizes(dry), "cpu" if dry else "cuda"
    found: dict[str, Any] = {}
    with Worker("packed_scores") as worker:
        for name, texts in [("embedded", chosen.sentences), *chosen.families.items()]:
            is_tiny = name != "embedded"
            folder = str(MODELS / name) if is_tiny else None
            maskings = chosen.maskings if is_tiny else ("original",)
            exact = log_probs(folder, texts, maskings, engine="native", precision="float32", device="cpu")
            options = {"folder": folder, "texts": texts, "maskings": maskings, "device": device}
            for precision in chosen.precisions:
                bound = (TINY_BOUNDS if is_tiny else BOUNDS)[precision]
                try:
                    scored = worker.ask(
                        "log_probs", CALL_SECONDS, engine="packed", precision=precision, **options
                    )
                    found[f"{name} {precision}"] = compared(scored, exact, bound)
                except WorkerError as error:
                    found[f"{name} {precision}"] = {"error": str(error)}
                save(found)
    wrong = [key for key, figures in found.items() if "error" in figures]
    return {"error": f"see {', '.join(wrong)}"} if wrong else {}


def compared(
    scored: dict[str, list[list[float]]], exact: dict[str, list[list[float]]], bound: float
) -> dict[str, Any]:
    """By masking the largest and the mean difference; an error where one is beyond the bound, or NaN."""
    found: dict[str, Any] = {"bound": bound}
    for masking, wanted in exact.items():
        differences = np.abs(np.concatenate(scored[masking]) - np.concatenate(wanted))
        sums, exact_sums = (np.array([sum(text) for text in texts]) for texts in (scored[masking], wanted))
        found[masking] = {
            "largest": float(differences.max()),
            "mean": float(differences.mean()),
            "rank_flips": rank_flips(sums, exact_sums),
        }
        if not differences.max() <= bound:
            found["error"] = f"{masking}: differences of up to {differences.max():.3g}"
    return found


def rank_flips(scores: np.ndarray, exact: np.ndarray) -> float:
    """The share of pairs of texts whose order changes; a tie on one side alone is half a change."""
    first, second = np.triu_indices(len(exact), k=1)
    if len(first) == 0:
        return 0.0
    signs, exact_signs = (np.sign(values[first] - values[second]) for values in (scores, exact))
    return float(np.abs(signs - exact_signs).mean() / 2)
