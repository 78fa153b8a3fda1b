"""Students: the engines against a plain float64 forward and a dot product, and bit-exact invariance."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from reference import reference_tokenize
from safetensors.numpy import load_file
from student_models import (
    NUM_LAYERS,
    encoder_tensors,
    make_student,
    share_tensors,
    write_index,
)
from test_agreement import PROTEIN, PROTEINS, content_of_length, texts_for
from tiny_models import MODELS, NATIVE, NATIVE_BOUNDS, read_lines

import mlmfast
from mlmfast import _core
from mlmfast.engines import self_check
from mlmfast.engines.native_engine import NativeEngine
from mlmfast.engines.self_check import check_batch, fastest_exact, tokens_per_value
from mlmfast.errors import ModelError, TextTooLongError

TORCH_ONLY = ("mpnet", "deberta-v2", "deberta-v2-legacy")
RUNS = [("torch", name) for name in (*NATIVE, *TORCH_ONLY)] + [("native", name) for name in NATIVE]
HEADS = ("token", "cls")
EXACT = 1e-4


@cache
def plain_encoder(name: str, layers: int | None) -> Any:
    """The encoder in float64 as Hugging Face itself loads it from the masked model."""
    config = transformers.AutoConfig.from_pretrained(MODELS / name)
    if layers is not None:
        field = next(key for key in NUM_LAYERS if key in config.to_dict())
        setattr(config, field, layers)
        if getattr(config, "layer_types", None) is not None:
            config.layer_types = config.layer_types[:layers]
    model, loading = transformers.AutoModel.from_pretrained(
        MODELS / name,
        config=config,
        attn_implementation="eager",
        dtype=torch.float32,
        output_loading_info=True,
    )
    assert all("pooler" in key for key in loading["missing_keys"])
    assert not loading["mismatched_keys"]
    return model.double().eval()


def plain_values(folder: Path, name: str, text: str, layers: int | None = None) -> NDArray[np.float64]:
    """The values of a text's ordinary tokens, or that of its first token for head cls."""
    ids, word_ids = reference_tokenize(MODELS / name, text)
    head = json.loads((folder / "config.json").read_text())["mlmfast_student"]["head"]
    tensors = load_file(folder / "model.safetensors")
    with torch.no_grad():
        states = plain_encoder(name, layers)(torch.tensor([ids]), torch.ones(1, len(ids)))[0][0].numpy()
    values = states @ tensors["student.weight"][0].astype(np.float64) + np.float64(tensors["student.bias"][0])
    is_ordinary = np.array([word is not None for word in word_ids])
    found: NDArray[np.float64] = values[is_ordinary] if head == "token" else values[:1]
    return found


def assert_agrees(result: mlmfast.TextScore, expected: NDArray[np.float64], tolerance: float) -> None:
    assert result.masking == "student"
    if result.student_head == "cls":
        assert (result.tokens, result.words) == ((), ())
        assert result.score == pytest.approx(expected[0], abs=tolerance)
        return
    np.testing.assert_allclose([token.log_prob for token in result.tokens], expected, rtol=0, atol=tolerance)
    assert result.num_tokens == len(expected)
    assert result.score == pytest.approx(expected.sum(), abs=tolerance * len(expected))


def bits(results: list[mlmfast.TextScore]) -> list[tuple[float | None, list[float]]]:
    return [(result.score, [token.log_prob for token in result.tokens]) for result in results]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(("engine", "name"), RUNS)
def test_engines_agree_with_the_plain_forward(engine: str, name: str, head: str, tmp_path: Path) -> None:
    folder = make_student(tmp_path / "student", name, head)
    texts = texts_for(name)
    with mlmfast.load(folder, engine=engine, precision="float32", workers=1) as scorer:
        assert scorer.describe()["student_head"] == head
        results = scorer.score(texts)
    for text, result in zip(texts, results, strict=True):
        if text:
            assert_agrees(result, plain_values(folder, name, text), EXACT)
            assert result.num_tokens == sum(w is not None for w in reference_tokenize(MODELS / name, text)[1])
            assert result.num_rows == 1
        else:
            assert (result.score, result.flags, result.num_tokens) == (None, ("empty",), 0)


@pytest.mark.parametrize("engine", ["native", "torch"])
@pytest.mark.parametrize("name", ["bert", "distilbert", "albert", "modernbert", "roberta"])
def test_fewer_layers(engine: str, name: str, tmp_path: Path) -> None:
    folder = make_student(tmp_path / "student", name, layers=1)
    whole = make_student(tmp_path / "whole", name)
    text = texts_for(name)[0]
    with mlmfast.load(folder, engine=engine, precision="float32", workers=1) as scorer:
        result = scorer.score([text])[0]
    assert_agrees(result, plain_values(folder, name, text, 1), EXACT)
    assert result.score != pytest.approx(float(plain_values(whole, name, text).sum()), abs=1e-2)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    ("engine", "name"), [("torch", "mpnet"), *(("native", name) for name in NATIVE[:10])]
)
def test_the_longest_text_and_one_over(engine: str, name: str, head: str, tmp_path: Path) -> None:
    folder = make_student(tmp_path / "student", name, head)
    with mlmfast.load(folder, engine=engine, precision="float32", workers=1) as scorer:
        limit = scorer.engine.max_length
        text, over = content_of_length(name, limit), content_of_length(name, limit + 1)
        assert_agrees(scorer.score([text])[0], plain_values(folder, name, text), EXACT)
        with pytest.raises(TextTooLongError, match=rf"texts\[1\]: {limit + 1} tokens"):
            scorer.score([text, over])


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("precision", NATIVE_BOUNDS)
@pytest.mark.parametrize("isa", _core.available_isas())
@pytest.mark.parametrize("name", ["bert", "modernbert", "esm2"])
def test_every_instruction_set_and_precision(
    name: str, isa: str, precision: str, head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLMFAST_ISA", isa)
    folder = make_student(tmp_path / "student", name, head)
    texts = [text for text in texts_for(name) if text]
    with mlmfast.load(folder, engine="native", precision=precision, workers=1) as scorer:
        for text, result in zip(texts, scorer.score(texts), strict=True):
            assert_agrees(result, plain_values(folder, name, text), NATIVE_BOUNDS[precision])


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("precision", NATIVE_BOUNDS)
@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert", "esm2", "albert"])
def test_scores_are_the_same_bits_whatever_stands_beside_them(
    name: str, precision: str, head: str, tmp_path: Path
) -> None:
    folder = make_student(tmp_path / "student", name, head)
    texts = (
        PROTEINS * 2
        if name in PROTEIN
        else [*(" ".join(t.split()[:9]) for t in read_lines("inaugural.txt")[:24]), ""]
    )

    def scores(texts: list[str], **options: int) -> list[tuple[float | None, list[float]]]:
        with mlmfast.load(folder, engine="native", precision=precision, **options) as scorer:
            return bits(scorer.score(texts))

    together = scores(texts, workers=1)
    assert scores(texts[::-1], workers=1)[::-1] == together
    assert scores(texts, workers=3, max_batch_tokens=70) == together
    with mlmfast.load(folder, engine="native", precision=precision, workers=1) as scorer:
        assert [bits(scorer.score([text]))[0] for text in texts] == together


@pytest.mark.parametrize("head", HEADS)
def test_torch_in_any_batch(head: str, tmp_path: Path) -> None:
    folder = make_student(tmp_path / "student", "roberta", head)
    texts = [" ".join(t.split()[:n]) for n, t in enumerate(read_lines("inaugural.txt")[:12], 1)]
    with mlmfast.load(folder, engine="torch", workers=1) as scorer:
        together = scorer.score(texts)
        apart = [scorer.score([text])[0] for text in texts]
    np.testing.assert_allclose([r.score for r in together], [r.score for r in apart], rtol=0, atol=5e-5 * 12)


@pytest.mark.parametrize("engine", ["native", "torch"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_weights(engine: str, dtype: str, tmp_path: Path) -> None:
    import safetensors.torch

    folder = make_student(tmp_path / "student", "bert")
    file = folder / "model.safetensors"
    halves = {n: t.to(getattr(torch, dtype)) for n, t in safetensors.torch.load_file(file).items()}
    safetensors.torch.save_file(halves, file)
    rounded = make_student(tmp_path / "rounded", "bert")
    safetensors.torch.save_file({n: t.float() for n, t in halves.items()}, rounded / "model.safetensors")
    texts = texts_for("bert")
    found = []
    for place in (folder, rounded):
        with mlmfast.load(place, engine=engine, precision="float32", workers=1) as scorer:
            found.append(bits(scorer.score(texts)))
    assert found[0] == found[1]


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_tensors_shared_with_a_sibling_folder(engine: str, tmp_path: Path) -> None:
    """The teacher's file holds more layers and a vocabulary head, none of which is taken."""
    (tmp_path / "teacher").mkdir()
    (tmp_path / "teacher" / "model.safetensors").write_bytes(
        (MODELS / "bert" / "model.safetensors").read_bytes()
    )
    whole = make_student(tmp_path / "whole", "bert", layers=1)
    names = [name for name in encoder_tensors(MODELS / "bert", 1) if "embeddings" in name]
    shared = share_tensors(make_student(tmp_path / "shared", "bert", layers=1), "teacher", names)
    assert len(names) > 3
    texts = texts_for("bert")
    found, sums = [], []
    for folder in (whole, shared):
        with mlmfast.load(folder, engine=engine, precision="float32", workers=1) as scorer:
            found.append(bits(scorer.score(texts)))
            sums.append(scorer.describe()["weights_sha256"])
    assert found[0] == found[1]
    assert sums[0] != sums[1]


@pytest.mark.parametrize("head", HEADS)
def test_the_default_precision_is_chosen_by_a_check(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mlmfast.load(make_student(tmp_path / "student", "bert", head), engine="native", workers=1) as scorer:
        files = scorer.files
    batch = check_batch(files)
    lengths = np.diff(batch.text_offsets)
    assert len(lengths) > 0
    assert len(batch.mask_positions) == 0
    assert batch.num_targets == (len(lengths) if head == "cls" else (lengths - 2).sum())
    assert np.array_equal(tokens_per_value(files, batch), lengths if head == "cls" else 1)
    kept = []
    for allowed in (self_check.LARGEST_DIFFERENCE, 10.0):
        monkeypatch.setattr(self_check, "LARGEST_DIFFERENCE", allowed)
        engine = fastest_exact(
            files, lambda precision: NativeEngine(files, precision=precision), ["bfloat16"]
        )
        kept.append(engine.describe()["precision"])
    assert kept == ["float32", "bfloat16"]


def test_an_index_that_names_no_tensor_of_its_file_is_refused(tmp_path: Path) -> None:
    folder = make_student(tmp_path / "student", "bert")
    (folder / "model.safetensors").rename(folder / "own.safetensors")
    names = load_file(folder / "own.safetensors")
    write_index(
        folder, dict.fromkeys(names, "own.safetensors") | {"student.weight": "../bert/model.safetensors"}
    )
    with pytest.raises(ModelError, match=r"names files that are not there: \.\./bert/model\.safetensors"):
        mlmfast.load(folder)
