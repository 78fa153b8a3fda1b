"""Losses of whole models of transformers, against those of dense logits."""

from __future__ import annotations

import pytest
import torch
import transformers
from sequence_models import CAUSAL, LENGTH, MAKERS, ONE_SIDED, VOCAB_SIZE, batch, made
from torch import nn

from mlmfast.errors import SettingsError, UnsupportedModelError
from mlmfast.functional import scoring_rule_loss
from mlmfast.training.huggingface import ScoringRule, model_loss

RULES = [
    ScoringRule("log"),
    ScoringRule("log", smoothing=0.1),
    ScoringRule("brier"),
    ScoringRule("spherical", smoothing=0.05),
    ScoringRule("power", alpha=1.5, smoothing=0.1, masked_log=False),
]


def dense_loss(model, inputs: dict[str, torch.Tensor], rule: ScoringRule) -> torch.Tensor:
    """From the model's own logits at all positions."""
    logits, labels = model(**inputs).logits, inputs["labels"]
    if model.config.model_type in CAUSAL:
        logits, labels = logits[:, :-1], labels[:, 1:]
    return scoring_rule_loss(
        logits,
        labels,
        rule=rule.name,
        alpha=rule.alpha,
        smoothing=rule.smoothing,
        masked_log=rule.masked_log,
    )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.name}-{rule.smoothing}")
@pytest.mark.parametrize("name", MAKERS)
def test_loss_and_gradients_are_those_of_dense_logits(name, rule):
    model, inputs = made(name), batch()
    parameters = [p for p in model.parameters() if p.requires_grad]
    found, expected = model_loss(model, inputs, rule), dense_loss(model, inputs, rule)
    assert found.item() == pytest.approx(expected.item(), abs=1e-5)
    for gradient, other in zip(
        torch.autograd.grad(found, parameters, allow_unused=True),
        torch.autograd.grad(expected, parameters, allow_unused=True),
        strict=True,
    ):
        if other is None:
            assert gradient is None
        else:
            torch.testing.assert_close(gradient, other, atol=1e-5, rtol=1e-4)
    assert set(inputs) == {"input_ids", "labels"}


@pytest.mark.parametrize("name", MAKERS)
def test_the_log_rule_is_the_models_own_loss(name):
    model, inputs = made(name), batch()
    assert model_loss(model, inputs, ScoringRule("log")).item() == pytest.approx(
        model(**inputs).loss.item(), abs=1e-5
    )


@pytest.mark.parametrize("name", ["bart", "gpt2"])
def test_outputs_asked_for_are_whole(name):
    model, inputs, rule = made(name), batch(), ScoringRule("spherical")
    loss, outputs = model_loss(model, inputs, rule, return_outputs=True)
    assert outputs.logits.shape == (4, LENGTH, VOCAB_SIZE)
    assert loss.item() == pytest.approx(model_loss(model, inputs, rule).item(), abs=1e-6)


@pytest.mark.parametrize("name", ["bart", "gpt2"])
def test_without_outputs_the_model_makes_logits_of_one_position(name):
    model, shapes = made(name), []
    handle = model.get_output_embeddings().register_forward_hook(
        lambda _, __, output: shapes.append(output.shape)
    )
    model_loss(model, batch(), ScoringRule("brier")).backward()
    handle.remove()
    assert shapes == [(4, 1, VOCAB_SIZE)]
    assert model(**batch()).logits.shape == (4, LENGTH, VOCAB_SIZE)


def test_num_items_divides_the_sum():
    model, inputs, rule = made("gpt2"), batch(), ScoringRule("brier")
    count = (inputs["labels"][:, 1:] != -100).sum()
    mean = model_loss(model, inputs, rule)
    assert model_loss(model, inputs, rule, num_items=2 * count).item() == pytest.approx(mean.item() / 2)


def test_a_batch_without_labels_is_refused():
    with pytest.raises(SettingsError, match="the batch has no labels"):
        model_loss(made("gpt2"), {"input_ids": batch()["input_ids"]}, ScoringRule("log"))


def test_capped_logits_are_refused():
    config = transformers.Gemma2Config(**ONE_SIDED, num_key_value_heads=2, head_dim=8)
    model = transformers.Gemma2ForCausalLM(config)
    with pytest.raises(UnsupportedModelError, match="configured with final_logit_softcapping"):
        model_loss(model, batch(), ScoringRule("log"))


def test_logits_that_are_not_the_output_layers_are_refused():
    class Doubled(transformers.GPT2LMHeadModel):
        def forward(self, *arguments, **options):
            outputs = super().forward(*arguments, **options)
            outputs.logits = 2 * outputs.logits
            return outputs

    model = Doubled(made("gpt2").config)
    nn.init.normal_(model.lm_head.weight)
    with pytest.raises(
        UnsupportedModelError, match="the logits of Doubled are not those of its output layer"
    ):
        model_loss(model, batch(), ScoringRule("log"))
