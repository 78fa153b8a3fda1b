"""What the study measures of a model in a folder: held-out figures, the tail of its PLL, BLiMP, rescoring."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from texts import read_pairs

import mlmfast
from mlmfast.engines.base import ModelFiles
from mlmfast.errors import InputError
from mlmfast.rescoring import (
    LanguageModel,
    NBestList,
    Rescorer,
    TextPreparation,
    mlm_scoring,
    read_lists,
)
from mlmfast.rescoring.metrics import metric_named
from mlmfast.rescoring.tuned_lists import tune_lists
from mlmfast.rescoring.tuning import TuningSettings
from mlmfast.results import TextScore
from mlmfast.scorer import open_model
from mlmfast.training import MaskingSettings, TrainingRows
from mlmfast.training.batches import HELD_OUT, random_of
from mlmfast.training.evaluation import evaluate
from mlmfast.training.masking import MaskedBatch, Vocabulary, masked_batch
from mlmfast.training.model import TrainedModel

MAX_BATCH_TOKENS = 4096
PRECISION = "bfloat16"
TAIL_SHARE = 0.05
NUM_TEXTS, NUM_WORDS = 50, 20
"""Held-out paragraphs whose first words are scored for the tail."""
PAIRS_PER_PARADIGM = 3
HYPOTHESES = 10
"""Of each list, those that are rescored."""
MEASURED_ON = {
    "precision": PRECISION,
    "tail_texts": NUM_TEXTS,
    "words_of_a_text": NUM_WORDS,
    "pairs_per_paradigm": PAIRS_PER_PARADIGM,
    "hypotheses": HYPOTHESES,
}


def measures(
    model: Path | None, held_out: TrainingRows, texts: Sequence[str], blimp: Path, nbest: Path
) -> dict[str, Any]:
    """All figures of a model, None for the embedded one."""
    found = held_out_figures(model, held_out)
    with mlmfast.load(model, engine="native", precision=PRECISION, workers=1) as scorer:
        openings = [" ".join(text.split()[:NUM_WORDS]) for text in texts[:NUM_TEXTS]]
        scored = scorer.score(openings)
        found |= tail(np.concatenate([s.columns.log_probs for s in scored if s.columns is not None]))
        found |= blimp_accuracy(scorer, some_pairs(read_pairs(blimp)))
        found |= word_error_rate(scorer, nbest)
    return found


def held_out_figures(model: Path | None, held_out: TrainingRows) -> dict[str, Any]:
    """As `mlmfast finetune` evaluates, with the same masks for every model."""
    files = open_model(model)
    return evaluate(TrainedModel(files), held_out_batch(files, held_out), MAX_BATCH_TOKENS).record()


def held_out_batch(files: ModelFiles, held_out: TrainingRows) -> MaskedBatch:
    """The masks that `mlmfast finetune` evaluates with."""
    always_masked = MaskingSettings(mask_share=1.0, random_share=0.0)
    rows = np.arange(held_out.num_rows)
    return masked_batch(held_out, rows, always_masked, Vocabulary.of(files.tokenizer), random_of(0, HELD_OUT))


def frequency_figures(rows: TrainingRows, held_out: TrainingRows) -> dict[str, Any]:
    """What a model has that knows only how often each token comes in `rows` (once more than it does)."""
    files = open_model()
    tokens = rows.input_ids[rows.word_index >= 0]
    counts = 1.0 + np.bincount(tokens, minlength=files.config.vocab_size)
    p = counts / counts.sum()
    targets = held_out_batch(files, held_out).target_ids
    return {
        "num_targets": len(targets),
        "log_loss": float(-np.log(p[targets]).mean()),
        "brier": float(1 + (p**2).sum() - 2 * p[targets].mean()),
        "accuracy": float((targets == p.argmax()).mean()),
    }


def tail(log_probs: ArrayLike) -> dict[str, Any]:
    """Of PLL's log-probabilities [k], one per token: PPPL, the mean of the TAIL_SHARE smallest (at
    least one), their share of the sum, and the 1st percentile."""
    ordered = np.sort(np.asarray(log_probs, dtype=np.float64))
    smallest = ordered[: max(1, math.ceil(TAIL_SHARE * len(ordered)))]
    return {
        "num_tokens": len(ordered),
        "pppl": math.exp(-ordered.mean()),
        "tail_mean": float(smallest.mean()),
        "tail_share": float(smallest.sum() / ordered.sum()),
        "percentile_1": float(np.percentile(ordered, 1)),
    }


def some_pairs(pairs: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """The first PAIRS_PER_PARADIGM pairs of each paradigm."""
    seen: dict[str, int] = {}
    taken = []
    for pair in pairs:
        seen[pair["paradigm"]] = seen.get(pair["paradigm"], 0) + 1
        if seen[pair["paradigm"]] <= PAIRS_PER_PARADIGM:
            taken.append(pair)
    return taken


def blimp_accuracy(scorer: mlmfast.Scorer, pairs: Sequence[dict[str, str]]) -> dict[str, Any]:
    """How often the acceptable sentence has the larger PLL; equal ones are wrong."""
    groups = scorer.score_groups([pair["good"], pair["bad"]] for pair in pairs)
    right = [_pll(good) > _pll(bad) for good, bad in groups]
    return {"num_pairs": len(right), "blimp_accuracy": float(np.mean(right))}


def _pll(scored: TextScore) -> float:
    assert scored.pll is not None
    return scored.pll


def word_error_rate(scorer: mlmfast.Scorer, path: Path) -> dict[str, Any]:
    """In percent: the first pass's, and with the PLL at a weight tuned by cross-fitting (5 folds);
    lists without a reference are left out."""
    model = LanguageModel(scorer, preparation=TextPreparation(capitalize="first", append_period=True))
    rescorer = Rescorer([model], mlm_scoring({"mlm": 0.0}))
    report = tune_lists(
        rescorer, map(_first, read_lists(path)), metric_named("wer"), TuningSettings(runs=1, num_resamples=1)
    ).report
    return {
        "num_lists": report.num_lists,
        "first_pass_wer": report.first_pass,
        "wer": report.cross_fitted,
        "weight": float(report.weights.values[1]),
    }


def _first(nbest: NBestList | InputError) -> NBestList:
    """The first HYPOTHESES of a list. Raises the InputError of one that could not be read."""
    if isinstance(nbest, InputError):
        raise nbest
    return NBestList(nbest.id, nbest.hypotheses[:HYPOTHESES], nbest.references)
