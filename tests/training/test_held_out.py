"""Evaluation on held-out texts, against plain figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from training_runs import HELD_OUT, rows_of, tiny_files

from mlmfast.training import MaskingSettings
from mlmfast.training.evaluation import NUM_BINS, evaluate, expected_calibration_error
from mlmfast.training.masking import Vocabulary, masked_batch
from mlmfast.training.model import TrainedModel


def plain_calibration_error(confidence: list[float], right: list[float]) -> float:
    """Guo et al. 2017, equation 3, bin by bin."""
    error = 0.0
    for number in range(NUM_BINS):
        low, high = number / NUM_BINS, (number + 1) / NUM_BINS
        inside = [i for i, c in enumerate(confidence) if low < c <= high or (c == 0 and number == 0)]
        if inside:
            accuracy = sum(right[i] for i in inside) / len(inside)
            mean = sum(confidence[i] for i in inside) / len(inside)
            error += len(inside) / len(confidence) * abs(accuracy - mean)
    return error


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60))
def test_calibration_error_is_that_of_the_plain_loop(predictions):
    confidence = np.array([c for c, _ in predictions])
    # Ends of bins are not exact numbers: keep clear of them.
    confidence = np.where(
        np.abs(confidence * NUM_BINS - np.round(confidence * NUM_BINS)) < 1e-9, 0.5, confidence
    )
    right = np.array([float(r) for _, r in predictions])
    expected = plain_calibration_error(confidence.tolist(), right.tolist())
    assert expected_calibration_error(confidence, right) == pytest.approx(expected, abs=1e-12)


def test_calibration_error_of_simple_cases():
    assert expected_calibration_error(np.array([1.0, 1.0]), np.array([1.0, 1.0])) == 0
    assert expected_calibration_error(np.array([1.0, 1.0]), np.array([0.0, 0.0])) == 1
    # Right in half of the cases at 0.5: calibrated, though every single one is off by 0.5.
    assert expected_calibration_error(np.array([0.5, 0.5]), np.array([1.0, 0.0])) == 0


@pytest.mark.parametrize("max_batch_tokens", [1, 300, 100_000])
def test_figures_are_those_of_float64_softmaxes(max_batch_tokens):
    model, rows = TrainedModel(tiny_files(), device="cpu"), rows_of(HELD_OUT[:12])
    vocabulary = Vocabulary.of(tiny_files().tokenizer)
    batch = masked_batch(
        rows, np.arange(12), MaskingSettings(0.3, 1.0, 0.0), vocabulary, np.random.default_rng(0)
    )
    found = evaluate(model, batch, max_batch_tokens)

    log_losses, briers, confidences, right = [], [], [], []
    double = model.huggingface.double().eval()
    for row in range(12):
        start, end = batch.offsets[row : row + 2]
        ids = torch.from_numpy(batch.input_ids[start:end].astype(np.int64))
        with torch.no_grad():
            p = double(input_ids=ids[None]).logits[0].softmax(-1).numpy()
        for place, target in zip(batch.target_positions, batch.target_ids, strict=True):
            if start <= place < end:
                q = p[place - start]
                is_target = np.arange(len(q)) == target
                log_losses.append(-math.log(q[target]))
                briers.append(((q - is_target) ** 2).sum())
                confidences.append(float(q.max()))
                right.append(float(q.argmax() == target))
    assert found.num_targets == len(log_losses) == batch.num_targets
    assert found.log_loss == pytest.approx(np.mean(log_losses), abs=1e-4)
    assert found.masked_pppl == pytest.approx(math.exp(np.mean(log_losses)), rel=1e-4)
    assert found.brier == pytest.approx(np.mean(briers), abs=1e-4)
    assert found.accuracy == pytest.approx(np.mean(right))
    assert found.calibration_error == pytest.approx(plain_calibration_error(confidences, right), abs=1e-3)


def test_evaluation_leaves_the_model_as_it_was():
    model = TrainedModel(tiny_files(), device="cpu")
    rows = rows_of(HELD_OUT[:4])
    vocabulary = Vocabulary.of(tiny_files().tokenizer)
    batch = masked_batch(rows, np.arange(4), MaskingSettings(), vocabulary, np.random.default_rng(0))
    model.huggingface.train()
    first, second = (evaluate(model, batch, 256) for _ in range(2))
    assert first == second
    assert model.huggingface.training
    assert all(p.grad is None for p in model.huggingface.parameters())
