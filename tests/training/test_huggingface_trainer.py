"""Scoring rules in transformers' Trainer, on a tiny sequence task."""

from __future__ import annotations

import pytest
import torch
import transformers
from sequence_models import CAUSAL, VOCAB_SIZE, batch, made
from transformers import Trainer, TrainingArguments

from mlmfast.errors import SettingsError
from mlmfast.training.huggingface import ScoringRule, ScoringRuleLoss


class ScoringRuleTrainer(ScoringRuleLoss, Trainer):
    pass


class Reversals(torch.utils.data.Dataset):
    """Three digits and the same backwards; after a separator for a causal model."""

    def __init__(self, *, joined: bool) -> None:
        numbers = torch.cartesian_prod(*[torch.arange(3, VOCAB_SIZE)] * 3)
        self.input_ids, self.labels = numbers, numbers.flip(1)
        if joined:
            question = torch.cat([numbers, torch.ones_like(numbers[:, :1])], dim=1)
            self.input_ids = torch.cat([question, self.labels], dim=1)
            self.labels = torch.cat([torch.full_like(question, -100), self.labels], dim=1)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.input_ids[index], "labels": self.labels[index]}


def trainer_of(folder, name: str, rule: ScoringRule, max_steps: int, **options) -> ScoringRuleTrainer:
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=max_steps,
        learning_rate=1e-2,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        seed=0,
        **{"per_device_train_batch_size": 32, "per_device_eval_batch_size": 500, **options},
    )
    trainer = ScoringRuleTrainer(
        model=made(name),
        args=arguments,
        train_dataset=Reversals(joined=name in CAUSAL),
        eval_dataset=Reversals(joined=name in CAUSAL),
    )
    trainer.scoring_rule = rule
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


@pytest.mark.parametrize("rule", ["log", "brier", "spherical"])
@pytest.mark.parametrize("name", ["bart", "gpt2"])
def test_the_trainer_learns_the_task(tmp_path, name, rule):
    trainer = trainer_of(tmp_path, name, ScoringRule(rule), 60)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    after = trainer.evaluate()["eval_loss"]
    # The scale of a score: from an even guess to certainty.
    whole = {"log": torch.log(torch.tensor(10.0)).item(), "brier": 0.9, "spherical": 0.7}[rule]
    assert after < before - whole / 8


@pytest.mark.parametrize("name", ["bart", "gpt2"])
def test_accumulated_batches_make_the_step_of_one_large_batch(tmp_path, name):
    rule, weights = ScoringRule("brier"), []
    for size, parts in ((32, 1), (8, 4)):
        trainer = trainer_of(
            tmp_path, name, rule, 1, per_device_train_batch_size=size, gradient_accumulation_steps=parts
        )
        trainer.args.optim = "sgd"
        trainer.train()
        weights.append(trainer.model.get_input_embeddings().weight.detach().clone())
    assert not torch.equal(weights[0], made(name).get_input_embeddings().weight)
    torch.testing.assert_close(weights[0], weights[1], atol=1e-6, rtol=1e-5)


def test_several_processes_are_refused(tmp_path):
    trainer = trainer_of(tmp_path, "gpt2", ScoringRule("log"), 1)

    class Accelerator:
        num_processes = 2

    trainer.accelerator = Accelerator()
    with pytest.raises(SettingsError, match="for one process"):
        trainer.compute_loss(trainer.model, batch())
