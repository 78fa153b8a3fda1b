"""Models that must not be scored with: each is refused by name, at load."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file
from tiny_models import MODELS

import mlmfast
from mlmfast.errors import ModelError, SettingsError
from mlmfast.models.heads import UNSUPPORTED_FIELDS


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bert-no-head", r"no complete masked language-model head: cls\.predictions\.transform"),
        (
            "bert-two-biases",
            r"output bias twice, as cls\.predictions\.bias and cls\.predictions\.decoder\.bias",
        ),
        ("bert-no-mask-token", r"no mask token"),
        ("bert-mask-is-unk", r"no mask token of its own: it is the unknown token"),
        ("bert-pickle-only", r"only pickled weights .*allow_pickle"),
        ("bert-no-weights", r"no weights; expected model\.safetensors"),
        ("bert-softcap", r"final_logit_softcapping = 30\.0, which is not carried out"),
        ("electra-discriminator", r"generator_predictions\.dense\.weight"),
        ("bert-partial", r"does not fill BertForMaskedLM: missing bert\.encoder\.layer"),
    ],
)
def test_untrustworthy_checkpoints_are_refused(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        mlmfast.load(MODELS / name, engine="torch")
    with pytest.raises(ModelError):
        mlmfast.load(MODELS / name)


def test_pickles_load_when_allowed() -> None:
    with mlmfast.load(MODELS / "bert-pickle-only", allow_pickle=True) as scorer:
        assert scorer.score(["the people"])[0].num_tokens > 0


def test_a_decoder_is_a_causal_model() -> None:
    with (
        mlmfast.load(MODELS / "bert-decoder") as scorer,
        pytest.raises(SettingsError, match="is a causal model"),
    ):
        scorer.score(["the people"])


def test_causal_and_masked_maskings_do_not_mix() -> None:
    with mlmfast.load(MODELS / "gpt2") as scorer:
        for masking in ("original", "word_l2r", "whole_word", "stride:2", "none"):
            with pytest.raises(SettingsError, match="is a causal model; masking"):
                scorer.score(["the people"], masking)
    with mlmfast.load(MODELS / "bert") as scorer, pytest.raises(SettingsError, match="is a masked model"):
        scorer.score(["the people"], "causal")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("no/such/folder/here", "no folder no/such/folder/here"),
        ("/no/such/folder", "no folder /no/such/folder"),
        ("./no-such-folder", "no folder ./no-such-folder, and it is not a hub id"),
        ("no-such-model-anywhere", "not a folder here, and the hub gave no model of that name"),
        (str(Path(__file__)), "is a file; expected a model's folder"),
        (str(MODELS), "no config.json"),
        ("", "model is ''; expected a folder"),
        (3, "model is 3; expected a folder"),
        ("x" * 300, "cannot look for such a folder"),
        ("~nobody-of-this-name/model", "cannot look for such a folder"),
    ],
)
def test_models_that_are_not_there(model: object, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        mlmfast.load(model)  # type: ignore[arg-type]


@pytest.mark.parametrize("revision", ["", ".", "..", 7])
def test_revisions_that_are_none(revision: object) -> None:
    """`..` in an address would be the model itself, whatever its revision."""
    with pytest.raises(ModelError, match=r"revision is .*; expected a branch, a tag or a whole commit hash"):
        mlmfast.load("someone/tiny", revision=revision)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "warp"}, "unknown engine 'warp'; expected one of auto"),
        ({"precision": "float8"}, "unknown precision 'float8'; expected one of float32"),
        ({"device": "abacus"}, "device 'abacus' cannot be used here"),
        ({"workers": 0}, "workers is 0"),
        ({"workers": "2"}, "workers is '2'; expected a whole number"),
        ({"max_batch_tokens": 2.5}, "max_batch_tokens is 2.5; expected a whole number"),
        ({"max_batch_tokens": 0}, "max_batch_tokens is 0"),
    ],
)
def test_unknown_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        mlmfast.load(MODELS / "bert", **options)  # type: ignore[arg-type]


def copy_of_bert(tmp_path: Path, **changes: object) -> Path:
    """The tiny BERT with another config.json."""
    folder = Path(shutil.copytree(MODELS / "bert", tmp_path / "bert"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return folder


@pytest.mark.parametrize("engine", ["auto", "native", "torch"])
@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 1},
        {"num_hidden_layers": 5},
        {"intermediate_size": 32},
        {"position_embedding_type": "relative_key"},
        {"quantization_config": {"quant_method": "fp8"}},
        {"architectures": [3]},
    ],
    ids=str,
)
def test_a_config_that_contradicts_the_weights_is_refused(
    tmp_path: Path, changes: dict[str, object], engine: str
) -> None:
    with pytest.raises(ModelError):
        mlmfast.load(copy_of_bert(tmp_path, **changes), engine=engine)


@pytest.mark.parametrize("engine", ["auto", "native", "torch"])
@pytest.mark.parametrize("field", UNSUPPORTED_FIELDS)
def test_a_field_that_is_not_carried_out_is_named(tmp_path: Path, field: str, engine: str) -> None:
    """Set to nothing it changes nothing."""
    mlmfast.load(copy_of_bert(tmp_path / "unset", **{field: None}), engine=engine).close()
    with pytest.raises(ModelError, match=f"sets {field} = 4, which is not carried out"):
        mlmfast.load(copy_of_bert(tmp_path / "set", **{field: 4}), engine=engine)


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_an_output_bias_is_known_by_either_name_and_not_missed(tmp_path: Path, engine: str) -> None:
    weights = copy_of_bert(tmp_path) / "model.safetensors"
    tensors = load_file(weights)
    bias = tensors.pop("cls.predictions.bias")
    save_file({**tensors, "cls.predictions.decoder.bias": bias}, weights, {"format": "pt"})
    with (
        mlmfast.load(weights.parent, engine=engine, precision="float32") as scorer,
        mlmfast.load(MODELS / "bert", engine=engine, precision="float32") as expected,
    ):
        assert scorer.score(["the people"])[0].score == expected.score(["the people"])[0].score
    save_file(tensors, weights, {"format": "pt"})
    with pytest.raises(ModelError, match=r"no complete masked language-model head: cls\.predictions\.bias"):
        mlmfast.load(weights.parent, engine=engine)


def test_a_cut_weights_file_is_refused(tmp_path: Path) -> None:
    weights = copy_of_bert(tmp_path) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(ModelError, match="not a whole safetensors file"):
        mlmfast.load(weights.parent)


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    folder = copy_of_bert(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": config["vocab_size"] - 1}))
    with pytest.raises(ModelError, match="the two do not belong together"):
        mlmfast.load(folder)


def test_deberta_heads_are_known_by_their_tensors(tmp_path: Path) -> None:
    """Published DeBERTa-v2 and -v3 folders do not say `legacy`, whose default is the wrong head."""
    folder = Path(shutil.copytree(MODELS / "deberta-v2", tmp_path / "deberta-v2"))
    config = json.loads((folder / "config.json").read_text())
    del config["legacy"]
    (folder / "config.json").write_text(json.dumps(config))
    with mlmfast.load(folder) as scorer, mlmfast.load(MODELS / "deberta-v2") as expected:
        assert scorer.score(["the people"])[0].score == expected.score(["the people"])[0].score


def test_a_head_that_computes_something_else_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlmfast.models import heads

    wrong = dataclasses.replace(heads.HEADS["bert"], transform=("cls.predictions.transform.dense",))
    monkeypatch.setitem(heads.HEADS, "bert", wrong)
    with pytest.raises(ModelError, match="differs from the model's own output"):
        mlmfast.load(MODELS / "bert", engine="torch")


def test_a_family_without_a_layout_runs_its_own_head(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlmfast.models import heads

    texts = ["the people of the nation", "a"]
    with mlmfast.load(MODELS / "bert", engine="torch", workers=1) as scorer:
        expected = scorer.score(texts, top_k=3, rank=True, entropy=True)
    monkeypatch.delitem(heads.HEADS, "bert")
    with mlmfast.load(MODELS / "bert", engine="torch", workers=1) as scorer:
        found = scorer.score(texts, top_k=3, rank=True, entropy=True)
    for first, second in zip(expected, found, strict=True):
        for a, b in zip(first.tokens, second.tokens, strict=True):
            assert a.log_prob == pytest.approx(b.log_prob, abs=1e-5)
            assert a.entropy == pytest.approx(b.entropy, abs=1e-4)
            assert a.rank == b.rank
            assert a.top is not None
            assert b.top is not None
            assert [t for t, _ in a.top] == [t for t, _ in b.top]
