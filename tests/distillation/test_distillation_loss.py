"""The losses against plain float64 loops, and the scale of targets."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from distillation_runs import corpus_of, teacher

from mlmfast.training.distillation.loss import Scale, text_loss, token_loss
from mlmfast.training.distillation.settings import LossSettings, StudentSettings
from mlmfast.training.distillation.student import Student


def plain_token_loss(values: list[list[float]], targets: list[list[float]], settings: LossSettings) -> float:
    of_tokens = of_texts = 0.0
    num_tokens = 0
    for row, wanted in zip(values, targets, strict=True):
        text = 0.0
        for value, target in zip(row, wanted, strict=True):
            if math.isnan(target):
                continue
            d = value - target
            num_tokens += 1
            text += d
            huber = settings.huber
            of_tokens += d * d if abs(d) <= huber else 2 * huber * abs(d) - huber**2
        of_texts += text * text
    return (of_tokens + settings.sentence_weight * of_texts) / num_tokens


@pytest.mark.parametrize("settings", [LossSettings(), LossSettings(0.0), LossSettings(2.5, 0.7)])
def test_the_token_loss_and_its_gradient(settings):
    random = np.random.default_rng(1)
    values, targets = random.standard_normal((2, 4, 6))
    targets[:, [0, 5]] = np.nan
    targets[2, 3:] = np.nan
    found = torch.tensor(values, requires_grad=True)
    loss = token_loss(found, torch.tensor(targets), settings)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(plain_token_loss(values, targets, settings), rel=1e-12)
    for place in [(0, 0), (1, 2), (2, 1), (2, 4)]:
        step = np.zeros_like(values)
        step[place] = 1e-6
        slope = plain_token_loss(values + step, targets, settings)
        slope -= plain_token_loss(values - step, targets, settings)
        assert float(found.grad[place]) == pytest.approx(slope / 2e-6, abs=1e-6)


def test_the_text_loss():
    loss = text_loss(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0]))
    assert float(loss) == 2.5


def test_the_scale_of_targets():
    targets = np.array([np.nan, 1.0, 3.0, np.nan], dtype=np.float32)
    scale = Scale.of(targets)
    assert (scale.mean, scale.deviation) == (2.0, 1.0)
    np.testing.assert_array_equal(scale.standardised(targets), [np.nan, -1, 1, np.nan])
    assert Scale.of(np.array([5.0], dtype=np.float32)).deviation == 1.0


@pytest.mark.parametrize("head", ["token", "cls"])
def test_padding_and_special_tokens_do_not_count(head):
    """A batch of several lengths against its texts one at a time, in plain loops."""
    corpus = corpus_of(["we the people", "a", "of the united states in order to form"])
    student = Student(teacher().files, StudentSettings(head), precision="float32")
    random = np.random.default_rng(2)
    with torch.no_grad():
        student.weight.copy_(torch.from_numpy(random.standard_normal((1, student.weight.shape[1]))))
    student.scale = Scale(-3.0, 2.0)
    if head == "token":
        targets = np.where(corpus.scored, random.standard_normal(len(corpus.scored)), np.nan)
    else:
        targets = random.standard_normal(corpus.num_texts)
    targets = targets.astype(np.float32)
    settings = LossSettings(0.3)
    values, wanted, sums = [], [], []
    for index in range(corpus.num_texts):
        place = slice(*corpus.offsets[index : index + 2])
        with torch.no_grad():
            states = student.encoder(
                input_ids=torch.from_numpy(corpus.input_ids[place].astype(np.int64))[None]
            )[0][0]
            value = (states.double() @ student.weight[0].double() + float(student.bias)).numpy()
        values.append(value if head == "token" else value[:1])
        wanted.append(targets[place] if head == "token" else targets[index : index + 1])
        kept = value[corpus.scored[place]] if head == "token" else value[:1]
        sums.append(float((kept * 2.0 - 3.0).sum()))
    texts = np.arange(corpus.num_texts)
    expected = plain_token_loss(values, wanted, settings if head == "token" else LossSettings(0.0))
    assert float(student.loss(corpus, targets, texts, settings).detach()) == pytest.approx(expected, rel=1e-4)
    assert student.scores(corpus, 1000) == pytest.approx(sums, rel=1e-4)
    assert student.scores(corpus, 4) == pytest.approx(sums, rel=1e-4)
