"""The packed engine on this GPU against the native engine in float32 on the CPU.

The embedded model on sentences; every family of models under every masking, from the tests' tiny models; and
the models of packed_timings, on sentences and on random words up to their longest texts. largest and mean are
of differences of log-probabilities, rank_flips the share of pairs of texts whose order changes. A worker
scores, each model and precision in a call of its own. Models not reached in time are named.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from core_build import ROOT
from deadline import seconds_left
from packed_scores import log_probs
from score_differences import rank_flips
from texts import BLIMP, INAUGURAL, read_sentences
from timing_cells import BASE, DRY_BASE, LENGTHS, TIMED_MODELS, Model, make_cell
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
"""As PACKED_BOUNDS in tests/tiny_models.py: random weights magnify rounding. On a CPU differences were up to
2e-5, 0.16 and 0.012, those of BERT-large."""
CALL_SECONDS, CASE_SECONDS = 60, 60
"""A call may take the one; a model of random weights is not begun when less than the other is left."""
NUM_SENTENCES, NUM_LINES = 130, 12
NUM_SENTENCES_OF_RANDOM = 40
FEW_MASKS = "stride:16"
"""The masking of long texts, which takes sixteen copies of each."""
MANY_TOKENS = 128


@dataclass(frozen=True)
class Case:
    name: str
    texts: Mapping[str, Sequence[str]]
    """By masking."""
    bounds: Mapping[str, float]
    """By precision."""
    folder: str | None = None
    """None is the embedded model."""


def cases(dry: bool) -> list[Case]:
    """Of trained weights, and of tiny models."""
    if dry:
        families, maskings = {"bert": ("We the people",)}, ("original", "none")
        sentences = ["He left.", "No."]
    else:
        families, maskings = FAMILIES, MASKINGS
        lines = INAUGURAL.read_text(encoding="utf-8").splitlines()[:NUM_LINES]
        sentences = read_sentences(BLIMP, NUM_SENTENCES, seed=0) + lines
    random_bounds = tried(RANDOM_BOUNDS, dry)
    return [
        Case("embedded", {"original": sentences}, tried(BOUNDS, dry)),
        *(
            Case(name, dict.fromkeys(maskings, texts), random_bounds, str(MODELS / name))
            for name, texts in families.items()
        ),
    ]


def tried(bounds: Mapping[str, float], dry: bool) -> Mapping[str, float]:
    """Those of the precisions that are scored in."""
    return {"float32": bounds["float32"]} if dry else bounds


def random_models(dry: bool) -> list[Model]:
    """BERT-base with its own vocabulary first."""
    return [DRY_BASE] if dry else sorted(TIMED_MODELS, key=lambda model: model != BASE)


def random_case(model: Model, scratch: Path, device: str, dry: bool) -> Case:
    """The model is saved first."""
    folder = model.save(scratch, device)
    texts = {"original": ["We met."]} if dry else texts_of_all_lengths(folder)
    return Case(model.name, texts, tried(RANDOM_BOUNDS, dry), str(folder))


def texts_of_all_lengths(folder: Path) -> dict[str, list[str]]:
    """By masking: sentences, and a text of each of LENGTHS."""
    texts: dict[str, list[str]] = {
        "original": read_sentences(BLIMP, NUM_SENTENCES_OF_RANDOM, seed=0),
        FEW_MASKS: [],
    }
    for length in LENGTHS:
        texts["original" if length < MANY_TOKENS else FEW_MASKS] += make_cell(folder, length, 1).texts
    return texts


def run(dry: bool, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    device = "cpu" if dry else "cuda"
    found: dict[str, Any] = {}
    not_reached: list[str] = []
    with tempfile.TemporaryDirectory() as scratch, Worker("packed_scores") as worker:
        for case in cases(dry):
            found |= checked(case, device, worker, save)
        for model in random_models(dry):
            if seconds_left() < CASE_SECONDS:
                not_reached.append(model.name)
                continue
            found |= checked(random_case(model, Path(scratch), device, dry), device, worker, save)
    wrong = [key for key, figures in found.items() if "error" in figures]
    return {"not_reached": not_reached} | ({"error": f"see {', '.join(wrong)}"} if wrong else {})


def checked(
    case: Case, device: str, worker: Worker, save: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """The differences in each precision."""
    exact = log_probs(case.folder, case.texts, engine="native", precision="float32", device="cpu")
    found: dict[str, Any] = {}
    for precision, bound in case.bounds.items():
        options = {"engine": "packed", "precision": precision, "device": device}
        try:
            scored = worker.ask("log_probs", CALL_SECONDS, folder=case.folder, texts=case.texts, **options)
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
