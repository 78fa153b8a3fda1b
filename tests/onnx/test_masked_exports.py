"""Masked and pll graphs of every architecture against the torch engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from test_agreement import MASKED, PROTEIN, content_of_length, texts_for
from tiny_models import MODELS, read_lines, tiny_scorer

import mlmfast
from mlmfast.engines.onnx_engine import open_session
from mlmfast.export.framing import framing_of
from mlmfast.export.pll_graph import pll_graph
from mlmfast.scorer import open_model

ARCHITECTURES = MASKED[:13]
TOLERANCE = 1e-4
MASKINGS = ("original", "word_l2r", "whole_word", "stride:3", "none")
AS_ROBERTA = ("xlm-roberta", "camembert", "sapiens-vh")
"""Models of its code: all maskings are tried on roberta."""


def log_probs(scorer: mlmfast.Scorer, texts: Sequence[str], masking: str) -> list[list[float]]:
    return [[token.log_prob for token in result.tokens] for result in scorer.score(texts, masking)]


def assert_close(found: Sequence[Sequence[float]], expected: Sequence[Sequence[float]]) -> None:
    assert [len(text) for text in found] == [len(text) for text in expected]
    assert sum(map(len, expected)) > 0
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(expected), rtol=0, atol=TOLERANCE)


def texts_of(name: str) -> list[str]:
    """Ragged ones, an empty one, one of one token, the longest that the model takes."""
    return [
        *[text for text in texts_for(name) if "\u4eba" not in text],
        content_of_length(name, tiny_scorer(name).engine.max_length),
    ]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_masked_graphs_agree_under_every_masking(name: str, exported: Callable[..., Path]) -> None:
    texts = texts_of(name)
    with mlmfast.load(exported(name, "masked"), workers=1) as scorer:
        assert scorer.engine.describe()["engine"] == "onnx"
        assert scorer.engine.max_length == tiny_scorer(name).engine.max_length
        for masking in MASKINGS[:1] if name in AS_ROBERTA else MASKINGS:
            assert_close(log_probs(scorer, texts, masking), log_probs(tiny_scorer(name), texts, masking))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_pll_graphs_agree(name: str, exported: Callable[..., Path], tmp_path: Path) -> None:
    """Made of the masked graph, as `export` makes them, which test_pll_graph.py exports in full."""
    texts = texts_of(name)
    files = open_model(MODELS / name)
    prefix, suffix = framing_of(name, files.tokenizer)
    masked = onnx.load(exported(name, "masked") / "model.onnx")
    graph = pll_graph(masked, mask_id=files.tokenizer.special.mask_id, prefix=prefix, suffix=suffix)
    onnx.save(graph, tmp_path / "pll.onnx")
    onnx.checker.check_model(tmp_path / "pll.onnx", full_check=True)
    session = open_session(tmp_path / "pll.onnx")

    def pll(text: str) -> NDArray[np.float32]:
        if name in PROTEIN:
            text = text.upper()
        ids = files.tokenizer.encode([text]).input_ids.astype(np.int64)
        found: NDArray[np.float32] = session.run(None, {"input_ids": ids})[0]
        return found

    assert_close([pll(text).tolist() for text in texts], log_probs(tiny_scorer(name), texts, "original"))


def test_scores_do_not_depend_on_the_batch(exported: Callable[..., Path]) -> None:
    texts = read_lines("inaugural.txt")[:12]
    folder = exported("bert", "masked")
    with (
        mlmfast.load(folder, workers=2, max_batch_tokens=100) as small,
        mlmfast.load(folder, workers=1) as large,
    ):
        together = np.concatenate(log_probs(large, texts, "original"))
        np.testing.assert_allclose(
            np.concatenate(log_probs(small, texts[::-1], "original")[::-1]), together, rtol=0, atol=5e-5
        )


def test_the_result_says_what_it_was_computed_with(exported: Callable[..., Path]) -> None:
    with mlmfast.load(exported("bert", "masked"), workers=1) as scorer:
        described = scorer.describe()
    assert (described["engine"], described["precision"], described["device"]) == ("onnx", "float32", "cpu")
    assert described["export"]["kind"] == "masked"
    assert (
        described["export"]["source"]["weights_sha256"] == open_model(MODELS / "bert").checkpoint.checksum()
    )
    assert "onnxruntime" in described["versions"]
