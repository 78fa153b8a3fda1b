"""The packed engine on this GPU against the native engine in float32 on the CPU.

The embedded model on sentences; every family of models under every masking, from the tests' tiny models; and
BERT-base with random weights. largest and mean are of differences of log-probabilities, rank_flips the share
of pairs of texts whose order changes. A worker scores, each model and precision in a call of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from core_build import ROOT
from packed_scores import log_probs
from texts import BLIMP, INAUGURAL, read_sentences
from timing_cells import BASE, DRY_BASE
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
BOUNDS = {"float32": 1e-4, "bfloat16": 0.1, "float16": 0.02}
"""As in tests/packed/test_packed_engine.py."""
RANDOM_BOUNDS = {"float32": 1e-4, "bfloat16": 0.3, "float16": 0.05}
"""As PACKED_BOUNDS in tests/tiny_models.py: random weights magnify rounding. On a CPU BERT-base's differences
were 6e-6, 0.11 and 0.008."""
CALL_SECONDS = 60
NUM_SENTENCES, NUM_LINES = 130, 12
NUM_SENTENCES_OF_BASE = 50


@dataclass(frozen=True)
class Case:
    name: str
    folder: str | None
    """None is the embedded model."""
    texts: Sequence[str]
    bounds: Mapping[str, float]
    """By precision."""
    maskings: Sequence[str] = ("original",)


def cases(dry: bool, base: Path) -> list[Case]:
    """base: the folder of BASE or DRY_BASE."""
    families: dict[str, Sequence[str]]
    if dry:
        families, maskings, precisions = {"bert": ("We the people",)}, ("original", "none"), ("float32",)
        sentences, of_base = ["He left.", "No."], ["We met."]
    else:
        families, maskings, precisions = FAMILIES, MASKINGS, tuple(BOUNDS)
        lines = INAUGURAL.read_text(encoding="utf-8").splitlines()[:NUM_LINES]
        sentences = read_sentences(BLIMP, NUM_SENTENCES, seed=0) + lines
        of_base = sentences[:NUM_SENTENCES_OF_BASE]
    bounds, random_bounds = ({p: of[p] for p in precisions} for of in (BOUNDS, RANDOM_BOUNDS))
    return [
        Case("embedded", None, sentences, bounds),
        *(Case(name, str(MODELS / name), texts, random_bounds, maskings) for name, texts in families.items()),
        Case((DRY_BASE if dry else BASE).name, str(base), of_base, random_bounds),
    ]


def run(dry: bool, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    device = "cpu" if dry else "cuda"
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch, Worker("packed_scores") as worker:
        base = (DRY_BASE if dry else BASE).save(Path(scratch), "cpu")
        for case in cases(dry, base):
            found |= checked(case, device, worker, save)
    wrong = [key for key, figures in found.items() if "error" in figures]
    return {"error": f"see {', '.join(wrong)}"} if wrong else {}


def checked(
    case: Case, device: str, worker: Worker, save: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """The differences in each precision."""
    what = {"folder": case.folder, "texts": case.texts, "maskings": case.maskings}
    exact = log_probs(**what, engine="native", precision="float32", device="cpu")
    found: dict[str, Any] = {}
    for precision, bound in case.bounds.items():
        options = {"engine": "packed", "precision": precision, "device": device}
        try:
            scored = worker.ask("log_probs", CALL_SECONDS, **what, **options)
            found[f"{case.name} {precision}"] = compared(scored, exact, bound)
        except WorkerError as error:
            found[f"{case.name} {precision}"] = {"error": str(error)}
        save(found)
    return found


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
