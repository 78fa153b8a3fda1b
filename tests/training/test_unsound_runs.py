"""Runs that end without a model worth keeping: nothing finite, or nothing learnt."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from training_runs import DATA, Silent, steps, tuned, weights

from mlmfast.errors import TrainingError
from mlmfast.training import MaskingSettings, ScheduleSettings, TrainingSettings
from mlmfast.training.metrics_file import read_metrics
from mlmfast.training.model import TrainedModel

SHORT = TrainingSettings(steps=4, batch_size=6, schedule=ScheduleSettings(2e-3, "cosine", 2))


@pytest.mark.parametrize("checkpoint_every", [1, 100])
def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, checkpoint_every):
    settings = TrainingSettings(
        steps=9,
        batch_size=6,
        checkpoint_every=checkpoint_every,
        schedule=ScheduleSettings(1e30, "constant"),
    )
    kept = "checkpoint.pt stays" if checkpoint_every == 1 else "no checkpoint was written yet"
    with pytest.raises(TrainingError, match=rf"step 2: the loss is (nan|inf).*{kept}.*lower --learning-rate"):
        tuned(tmp_path / "a", settings)
    assert (tmp_path / "a" / "checkpoint.pt").exists() == (checkpoint_every == 1)
    assert not (tmp_path / "a" / "model.safetensors").exists()


@pytest.mark.parametrize("num_steps", [1, 3])
def test_weights_that_are_not_finite_are_not_saved(tmp_path, num_steps):
    """The loss of the step that made them so is finite."""
    schedule = ScheduleSettings(1e38, "constant")
    settings = TrainingSettings(steps=num_steps, batch_size=6, checkpoint_every=1, schedule=schedule)
    with pytest.raises(
        TrainingError, match="step 1: weights are no longer finite; no checkpoint was written"
    ):
        tuned(tmp_path / "a", settings, held_out=None)
    assert not (tmp_path / "a" / "checkpoint.pt").exists()
    assert not (tmp_path / "a" / "model.safetensors").exists()


def test_the_checkpoint_before_weights_that_are_not_finite_stays(tmp_path):
    class Spoiler(Silent):
        def stepped(self, record: dict) -> None:
            if record["step"] == 4:
                trainer.huggingface.cls.predictions.bias.data[0] = math.inf

    def kept(*arguments, **options):
        nonlocal trainer
        trainer = TrainedModel(*arguments, **options)
        return trainer

    trainer = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlmfast.training.run.TrainedModel", kept)
        with pytest.raises(
            TrainingError, match=r"step 4: weights are no longer finite; \S+checkpoint.pt stays"
        ):
            tuned(tmp_path / "a", replace(SHORT, checkpoint_every=3), held_out=None, listener=Spoiler())
    assert torch.load(tmp_path / "a" / "checkpoint.pt", weights_only=True)["step"] == 3


def test_a_batch_without_a_target_changes_nothing_and_says_so(tmp_path):
    settings = replace(SHORT, batch_size=1, masking=MaskingSettings(1e-9))
    with pytest.raises(TrainingError, match=r"no step had a target.*--mask-probability"):
        tuned(tmp_path / "a", settings, held_out=None)
    records = steps(read_metrics(tmp_path / "a" / "metrics.jsonl"))
    assert [(r["loss"], r["num_targets"], r["gradient_norm"]) for r in records] == [(None, 0, 0.0)] * 4
    before = weights(DATA / "models" / "bert")
    after = torch.load(tmp_path / "a" / "checkpoint.pt", weights_only=True)["model"]
    assert set(before) <= set(after)
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    assert not (tmp_path / "a" / "model.safetensors").exists()


def test_some_batches_without_a_target_are_no_error(tmp_path):
    settings = replace(SHORT, batch_size=1, masking=MaskingSettings(0.02))
    targets = [r["num_targets"] for r in steps(tuned(tmp_path / "a", settings, held_out=None))]
    assert min(targets) == 0 < max(targets)
