"""Exports of models that take 512 tokens, on a text of so many beside short ones, against plain forwards."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from reference import reference_log_probs, reference_tokenize
from safetensors.numpy import load_file
from student_models import change_config, change_tensors
from test_agreement import content_of_length
from tiny_models import MODELS

import mlmfast
from mlmfast.engines.onnx_engine import open_session
from mlmfast.export import export_model
from mlmfast.export.pll_graph import pll_graph
from mlmfast.scorer import open_model

LENGTH = 512
NAMES = ("bert", "modernbert")
"""Absolute positions; rotary ones and local windows."""
MASKING = "stride:64"
TOLERANCE = 1e-4


def long_model(name: str, folder: Path) -> Path:
    """A tiny model that takes so many tokens; absolute positions come again where there are no more."""
    shutil.copytree(MODELS / name, folder)
    old = json.loads((folder / "config.json").read_text())["max_position_embeddings"]
    new = LENGTH + old - open_model(folder).config.max_length
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"model_max_length": LENGTH}))
    change_config(folder, max_position_embeddings=new)
    tensors = load_file(folder / "model.safetensors")
    tables = {key: value for key, value in tensors.items() if key.endswith(".position_embeddings.weight")}
    longer = {key: np.resize(table, (new, table.shape[1])) for key, table in tables.items()}
    return change_tensors(folder, longer)


def assert_agrees(found: list[float], folder: Path, text: str, masking: str) -> None:
    ids, word_ids = reference_tokenize(folder, text)
    expected = np.array(reference_log_probs(folder, ids, word_ids, masking))
    np.testing.assert_allclose(found, expected[~np.isnan(expected)], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", NAMES)
def test_a_masked_graph_of_512_tokens(name: str, tmp_path: Path) -> None:
    folder = long_model(name, tmp_path / "model")
    export_model(folder, kind="masked", output=tmp_path / "graph")
    texts = [content_of_length(name, LENGTH), "a", content_of_length(name, 70)]
    with mlmfast.load(tmp_path / "graph", workers=1) as scorer:
        assert scorer.engine.max_length == LENGTH
        results = scorer.score(texts, MASKING)
    assert results[0].num_tokens == LENGTH - 2
    for text, result in zip(texts, results, strict=True):
        assert_agrees([token.log_prob for token in result.tokens], folder, text, MASKING)


def test_a_pll_graph_of_512_tokens(tmp_path: Path) -> None:
    """Its every row against the torch engine's; the masked graph it is made of is checked above."""
    folder = long_model("bert", tmp_path / "model")
    export_model(folder, kind="masked", output=tmp_path / "graph")
    mask_id = open_model(folder).tokenizer.special.mask_id
    masked = onnx.load(tmp_path / "graph" / "model.onnx")
    onnx.save(pll_graph(masked, mask_id=mask_id, prefix=1, suffix=1), tmp_path / "pll.onnx")
    text = content_of_length("bert", LENGTH)
    with mlmfast.load(folder, engine="torch", workers=1) as scorer:
        ids = scorer.files.tokenizer.encode([text]).input_ids.astype(np.int64)
        [expected] = scorer.score([text])
    found = open_session(tmp_path / "pll.onnx").run(None, {"input_ids": ids})[0]
    assert found.shape == (LENGTH - 2,)
    np.testing.assert_allclose(found, [t.log_prob for t in expected.tokens], rtol=0, atol=TOLERANCE)
