"""Models that cannot be trusted are refused by name; their odd but sound relatives score alike."""

from __future__ import annotations

import pytest
from command_line import MODELS, lines

TEXTS = ("My heart is hopeful.", "unbelievable countrymen")

REFUSED = {
    "bert-no-weights": (1, "no weights; expected model.safetensors"),
    "bert-no-head": (1, "no complete masked language-model head"),
    "bert-partial": (1, "bert.encoder.layer.1"),
    "bert-two-biases": (1, "cls.predictions.bias and cls.predictions.decoder.bias"),
    "bert-softcap": (1, "final_logit_softcapping = 30.0"),
    "bert-pickle-only": (1, "--allow-pickle"),
    "bert-no-mask-token": (1, "no mask token"),
    "bert-mask-is-unk": (1, "it is the unknown token"),
    "bert-decoder": (2, "is a causal model"),
    "electra-discriminator": (1, "no complete masked language-model head"),
    "no-such-folder": (1, "is not a hub id"),
}


@pytest.mark.parametrize("folder", REFUSED)
def test_refused(mlmfast_command, tmp_path, folder):
    status, reason = REFUSED[folder]
    output = tmp_path / "out.jsonl"
    run = mlmfast_command.score("--output", output, stdin=lines(*TEXTS), model=MODELS / folder)
    assert run.status == status
    assert reason in run.err
    assert run.err.startswith("mlmfast: error: ")
    assert run.err.count("\n") == 1
    assert not output.exists()


def test_unknown_hub_id(mlmfast_command):
    run = mlmfast_command.score(stdin=lines("x"), model="nobody/has-this-model")
    assert run.status == 1
    assert "'nobody/has-this-model' is not a folder here" in run.err
    assert run.err.count("\n") == 1


def test_a_file_is_no_model(mlmfast_command):
    run = mlmfast_command.score(stdin=lines("x"), model=MODELS / "bert" / "model.safetensors")
    assert run.status == 1
    assert "is a file; expected a model's folder" in run.err


@pytest.mark.parametrize(
    ("folder", "options"),
    [("bert-legacy-names", ()), ("bert-sharded", ()), ("bert-pickle-only", ("--allow-pickle",))],
)
def test_accepted(mlmfast_command, folder, options):
    expected = [r["score"] for r in mlmfast_command.score(stdin=lines(*TEXTS)).records]
    run = mlmfast_command.score(*options, stdin=lines(*TEXTS), model=MODELS / folder)
    assert run.status == 0, run.err
    assert [r["score"] for r in run.records] == pytest.approx(expected, abs=5e-5)
