"""The pll graph: blocks of rows, sentences of no token and of one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from test_agreement import content_of_length
from tiny_models import MODELS, read_lines, tiny_scorer

from mlmfast.engines.onnx_engine import open_session
from mlmfast.export import pll_graph as pll_module
from mlmfast.scorer import open_model

LENGTHS = [0, 1, 2, 3, 7, 20, 62]


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_an_exported_pll_graph_scores_sentences(precision: str, exported: Callable[..., Path]) -> None:
    """int8 is exact only up to its own error, which depends on the tokens of a block."""
    session = open_session(exported("bert", "pll", precision) / "model.onnx")
    encode = open_model(MODELS / "bert").tokenizer.encode
    texts = read_lines("inaugural.txt")[:4]
    for text, result in zip(texts, tiny_scorer("bert").score(texts), strict=True):
        found = session.run(["log_probs"], {"input_ids": encode([text]).input_ids.astype(np.int64)})[0]
        expected = [token.log_prob for token in result.tokens]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 if precision == "float32" else 2.0)
        assert np.abs(found - expected).max() > 0


@pytest.mark.parametrize("tokens_per_block", [1, 100, 700, 8192])
def test_blocks_of_any_size_give_the_same(
    tokens_per_block: int, exported: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pll_module, "TOKENS_PER_BLOCK", tokens_per_block)
    masked = onnx.load(exported("bert", "masked") / "model.onnx")
    mask_id = open_model(MODELS / "bert").tokenizer.special.mask_id
    onnx.save(pll_module.pll_graph(masked, mask_id=mask_id, prefix=1, suffix=1), tmp_path / "pll.onnx")
    blocks, whole = open_session(tmp_path / "pll.onnx"), open_session(exported("bert", "pll") / "model.onnx")
    ids = open_model(MODELS / "bert").tokenizer.encode([content_of_length("bert", 64)]).input_ids
    for length in LENGTHS:
        sentence = {"input_ids": np.concatenate([ids[: length + 1], ids[-1:]]).astype(np.int64)}
        found = blocks.run(None, sentence)[0]
        assert found.shape == (length,)
        np.testing.assert_allclose(found, whole.run(None, sentence)[0], rtol=0, atol=2e-5)


def test_it_does_not_score_with_mlmfast(exported: Callable[..., Path]) -> None:
    import mlmfast

    with pytest.raises(mlmfast.ModelError, match=r"pll export.*kind masked"):
        mlmfast.load(exported("bert", "pll"))
