"""The model that is tuned: its head at the targets, what is frozen, what decays."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from training_runs import DATA, FAMILIES, LINES, rows_of, tiny_files

from mlmfast.errors import SettingsError, UnsupportedModelError
from mlmfast.functional import linear_scoring_rule_loss, scoring_rule_loss
from mlmfast.scorer import open_model
from mlmfast.training import MaskingSettings
from mlmfast.training.masking import MaskedBatch, Vocabulary, masked_batch
from mlmfast.training.model import TrainedModel, encoder_layers
from mlmfast.training.optimiser import adamw, set_learning_rate


def batch_of(name: str) -> MaskedBatch:
    texts = ["ACDEFGHIKL", "MKVL", "WYTSRQ"] if name == "esm2" else LINES[:4]
    rows = rows_of(texts, name)
    vocabulary = Vocabulary.of(tiny_files(name).tokenizer)
    random = np.random.default_rng(1)
    return masked_batch(rows, np.arange(rows.num_rows), MaskingSettings(0.3), vocabulary, random)


def plain_loss(model: TrainedModel, batch: MaskedBatch, rule: str) -> torch.Tensor:
    """Row by row through the whole model: logits everywhere, then the targets'."""
    losses = []
    for row in range(batch.num_rows):
        start, end = batch.offsets[row : row + 2]
        inside = (batch.target_positions >= start) & (batch.target_positions < end)
        ids = torch.from_numpy(batch.input_ids[start:end].astype(np.int64))
        logits = model.huggingface(input_ids=ids[None]).logits[0]
        places = torch.from_numpy(batch.target_positions[inside] - start)
        target = torch.from_numpy(batch.target_ids[inside].astype(np.int64))
        losses.append(scoring_rule_loss(logits[places], target, rule=rule, reduction="sum"))
    return torch.stack(losses).sum()


@pytest.mark.parametrize("name", FAMILIES)
def test_loss_and_gradients_are_those_of_the_whole_model(name):
    """Padding, gathering and a tied output layer change nothing."""
    model, batch = TrainedModel(tiny_files(name), device="cpu"), batch_of(name)
    parameters = {n: p for n, p in model.huggingface.named_parameters() if p.requires_grad}
    features, targets = model.features(batch)
    assert features.shape[0] == batch.num_targets
    loss = linear_scoring_rule_loss(
        features, model.weight, targets, linear_bias=model.bias, rule="brier", reduction="sum"
    )
    expected = plain_loss(model, batch, "brier")
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-4)
    found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    plain = torch.autograd.grad(expected, list(parameters.values()), allow_unused=True)
    largest = max(float(g.abs().max()) for g in plain if g is not None)
    for parameter_name, gradient, other in zip(parameters, found, plain, strict=True):
        assert (gradient is None) == (other is None), parameter_name
        if gradient is not None:
            assert float((gradient - other).abs().max()) < 1e-4 * max(largest, 1.0), parameter_name


def test_frozen_layers_and_embeddings():
    model = TrainedModel(tiny_files(), device="cpu")
    model.freeze(embeddings=True, layers=1)
    frozen = {n for n, p in model.huggingface.named_parameters() if not p.requires_grad}
    assert frozen == {
        n
        for n, _ in model.huggingface.named_parameters()
        if n.startswith(("bert.embeddings.", "bert.encoder.layer.0."))
    }
    assert model.bias is not None
    assert model.bias.requires_grad


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_has_layers_and_embeddings_to_freeze(name):
    model = TrainedModel(tiny_files(name), device="cpu")
    stack = encoder_layers(model.huggingface.base_model)
    config = model.huggingface.config
    assert len(stack) == (1 if name == "albert" else config.num_hidden_layers)
    model.freeze(embeddings=True, layers=len(stack))
    assert not model.huggingface.get_input_embeddings().weight.requires_grad
    assert not any(p.requires_grad for p in stack.parameters())
    assert any(p.requires_grad for p in model.huggingface.parameters())


def test_more_layers_than_there_are_cannot_be_frozen():
    with pytest.raises(SettingsError, match="freeze_layers is 3, but the model has 2"):
        TrainedModel(tiny_files(), device="cpu").freeze(embeddings=False, layers=3)


def test_norms_and_biases_do_not_decay():
    """With no gradient, a step only decays."""
    model = TrainedModel(tiny_files(), device="cpu").huggingface
    optimiser = adamw(model, 0.5)
    set_learning_rate(optimiser, 0.1)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    for name, parameter in model.named_parameters():
        kept = name.endswith("bias") or "LayerNorm" in name
        expected = before[name] * (1.0 if kept else 1 - 0.1 * 0.5)
        torch.testing.assert_close(parameter.detach(), expected)


def test_a_model_with_nothing_left_to_tune_is_refused():
    model = TrainedModel(tiny_files(), device="cpu").huggingface.requires_grad_(False)
    with pytest.raises(SettingsError, match="all weights of the model are frozen"):
        adamw(model, 0.0)


def test_a_causal_model_is_refused():
    with pytest.raises(SettingsError, match="gpt2 is a causal model"):
        TrainedModel(tiny_files("gpt2"), device="cpu")


def test_a_head_that_is_not_known_is_refused(tmp_path):
    folder = tmp_path / "fnet"
    folder.mkdir()
    for file in (DATA / "models" / "bert").iterdir():
        content = file.read_bytes()
        if file.name == "config.json":
            content = content.replace(b'"bert"', b'"fnet"').replace(b"BertForMaskedLM", b"FNetForMaskedLM")
        (folder / file.name).write_bytes(content)
    with pytest.raises(UnsupportedModelError, match="the head of model type 'fnet' is not known here"):
        TrainedModel(open_model(folder), device="cpu")
