"""The logits engines give on demand: whole rows at the targets' places, and the targets' own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from reference import load_model
from tiny_models import MODELS, tiny_scorer

from mlmfast.engines import Outputs
from mlmfast.types import RowBatch, TargetOutputs

ENGINES_OF = {
    "bert": ("native", "torch"),
    "albert": ("native", "torch"),
    "modernbert": ("native", "torch"),
    "esm2": ("native", "torch"),
    "deberta-v2": ("torch",),  # whose head is the model's own code
    "mpnet": ("torch",),
}
CASES = [(name, engine) for name, engines in ENGINES_OF.items() for engine in engines]
TOLERANCE = 1e-4
ALL = Outputs(logit=True, logits=True)


def batch_of(name: str) -> RowBatch:
    """Three rows of two texts; targets out of order, two of one place, and none in the last row."""
    special = tiny_scorer(name).files.tokenizer.special
    assert special.mask_id is not None
    return RowBatch(
        input_ids=np.array([2, 10, 11, 12, 3, 2, 20, 21, 3], dtype=np.int32),
        text_offsets=np.array([0, 5, 9]),
        token_type_ids=None,
        row_text=np.array([1, 0, 0], dtype=np.int32),
        mask_positions=np.array([1, 1, 3, 2], dtype=np.int32),
        mask_offsets=np.array([0, 1, 3, 4]),
        target_positions=np.array([2, 1, 3, 1, 3], dtype=np.int32),
        target_ids=np.array([5, 20, 12, 10, 7], dtype=np.int32),
        target_offsets=np.array([0, 2, 5, 5]),
        mask_token_id=special.mask_id,
    )


def expected_logits(name: str, batch: RowBatch) -> np.ndarray:
    """[t, V] by one forward of Hugging Face in float64 per target."""
    rows = np.repeat(np.arange(batch.num_rows), np.diff(batch.target_offsets))
    found = []
    for row, position in zip(rows, batch.target_positions, strict=True):
        text = batch.row_text[row]
        ids = batch.input_ids[batch.text_offsets[text] : batch.text_offsets[text + 1]].copy()
        ids[batch.mask_positions[batch.mask_offsets[row] : batch.mask_offsets[row + 1]]] = batch.mask_token_id
        with torch.no_grad():
            logits = load_model(MODELS / name)(input_ids=torch.from_numpy(ids)[None].long()).logits
        found.append(logits[0, position].numpy())
    return np.stack(found)


def score(name: str, engine: str, batch: RowBatch, outputs: Outputs) -> TargetOutputs:
    return tiny_scorer(name, engine=engine).engine.score(batch, outputs)


@pytest.mark.parametrize(("name", "engine"), CASES)
def test_logits_are_the_models_own(name: str, engine: str) -> None:
    batch = batch_of(name)
    expected = expected_logits(name, batch)
    found = score(name, engine, batch, ALL)
    assert found.logits is not None
    assert found.logits.dtype == np.float32
    np.testing.assert_allclose(found.logits, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("name", "engine"), CASES)
def test_columns_agree_with_each_other(name: str, engine: str) -> None:
    batch = batch_of(name)
    found = score(name, engine, batch, ALL)
    assert found.logit is not None
    assert found.logits is not None
    own = found.logits[np.arange(batch.num_targets), batch.target_ids]
    assert own.tobytes() == found.logit.tobytes()
    normalisers = np.log(np.exp(found.logits.astype(np.float64)).sum(axis=1))
    np.testing.assert_allclose(found.log_prob, own - normalisers, rtol=0, atol=1e-5)
    alone = score(name, engine, batch, Outputs())
    assert alone.logit is None
    assert alone.logits is None
    assert alone.log_prob.tobytes() == found.log_prob.tobytes()


def test_no_targets() -> None:
    nothing, none = np.zeros(0, dtype=np.int32), np.zeros(1, dtype=np.int64)
    batch = RowBatch(nothing, none, None, nothing, nothing, none, nothing, nothing, none, 4)
    found = score("bert", "native", batch, ALL)
    assert found.logits is not None
    assert found.logits.shape == (0, 320)
