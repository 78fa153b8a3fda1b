"""How good a model's predictions are on texts it is not tuned on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from mlmfast.functional import linear_score
from mlmfast.scheduling import pack
from mlmfast.training.masking import MaskedBatch
from mlmfast.training.model import TrainedModel
from mlmfast.types import JsonRecord

NUM_BINS = 15


@dataclass(frozen=True)
class Evaluation:
    """Means over the targets; NaN if the model's output is.

    log_loss: -log p of the target, in nats; brier: sum over the vocabulary of (p - [is the target])^2, 0 to
    2; calibration_error: see `expected_calibration_error`, of the likeliest token; accuracy: its share of
    right ones.
    """

    num_targets: int
    log_loss: float
    brier: float
    calibration_error: float
    accuracy: float

    @property
    def masked_pppl(self) -> float:
        """exp(log_loss). Its targets are masked together, so that each is predicted from a text with other
        masks: higher than the PPPL of `mlmfast score`, which masks one token at a time."""
        return math.exp(min(self.log_loss, 700.0))

    def record(self) -> JsonRecord:
        return {
            "num_targets": self.num_targets,
            "log_loss": self.log_loss,
            "masked_pppl": self.masked_pppl,
            "brier": self.brier,
            "calibration_error": self.calibration_error,
            "accuracy": self.accuracy,
        }


def evaluate(model: TrainedModel, batch: MaskedBatch, max_batch_tokens: int) -> Evaluation:
    """The model's predictions of the targets of `batch`, at least one, in float32 and without dropout."""
    columns = []
    was_training = model.huggingface.training
    model.huggingface.eval()
    with torch.no_grad():
        for rows in pack(np.diff(batch.offsets), max_batch_tokens):
            part = batch.part(rows)
            if part.num_targets:
                columns.append(_predictions(model, part))
    model.huggingface.train(was_training)
    log_loss, brier, confidence, right = np.concatenate(columns, axis=1)
    return Evaluation(
        num_targets=len(right),
        log_loss=float(log_loss.mean()),
        brier=float(brier.mean()),
        calibration_error=(
            expected_calibration_error(confidence, right) if np.isfinite(confidence).all() else math.nan
        ),
        accuracy=float(right.mean()),
    )


def expected_calibration_error(
    confidence: NDArray[np.float64], right: NDArray[np.float64], num_bins: int = NUM_BINS
) -> float:
    """How far confidence is from accuracy (Guo et al. 2017, equation 3).

    The mean over the predictions of |accuracy - mean confidence| of their bin, in bins of equal widths that
    hold their upper ends. confidence [k]: probabilities; right [k]: 1 for a right prediction, else 0.
    """
    bins = np.clip(np.ceil(confidence * num_bins).astype(np.int64) - 1, 0, num_bins - 1)
    gap = np.bincount(bins, right - confidence, minlength=num_bins)
    return float(np.abs(gap).sum() / len(confidence))


def _predictions(model: TrainedModel, part: MaskedBatch) -> NDArray[np.float64]:
    """float64[4, t]: log loss, Brier score, probability of the likeliest token, whether it is right."""
    features, targets = model.features(part)
    found = linear_score(
        features, model.weight, targets, linear_bias=model.bias, rules=("log", "brier"), topk=1
    )
    assert found.top_ids is not None
    assert found.top_log_probs is not None
    log_score, brier_score = found.scores
    right = found.top_ids[:, 0] == targets
    columns = torch.stack([-log_score, 1 - brier_score, found.top_log_probs[:, 0].exp(), right])
    predictions: NDArray[np.float64] = columns.double().cpu().numpy()
    return predictions
