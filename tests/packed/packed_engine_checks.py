"""The packed engine with its Triton kernels, end to end on small batches.

Run by test_packed_interpreter under the interpreter, and as it stands where there is a GPU.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graph_lanes import assert_same, buckets, poison, with_graphs
from host_reads import assert_forward_waits_for_nothing
from random_batches import random_batch
from student_models import make_student
from tiny_models import PACKED_BOUNDS, tiny_scorer

import mlmfast
from mlmfast.engines import Outputs
from mlmfast.engines.packed.engine import PackedEngine
from mlmfast.types import RowBatch, TargetOutputs

RUNS = [
    ("bert", "float32"),
    ("bert", "bfloat16"),
    ("roberta", "float32"),
    ("distilbert", "float32"),
    ("xlm-roberta", "float32"),
    ("albert", "float32"),
    ("albert", "float16"),
    ("electra", "float32"),
    ("modernbert", "float32"),
    ("modernbert", "bfloat16"),
    ("esm2", "float32"),
]


def batch_for(name: str, masked: float = 0.3) -> RowBatch:
    """Rows of one token and of more than a local window's among them; padding inside rows."""
    mask_id = tiny_scorer(name).files.tokenizer.special.mask_id
    assert mask_id is not None
    return random_batch(
        [5, 1, 30], 7, vocab_size=30, mask_id=mask_id, masked=masked, with_types=name == "bert", seed=5
    )


def score(name: str, engine: str, precision: str, batch: RowBatch, outputs: Outputs) -> TargetOutputs:
    return tiny_scorer(name, precision, engine).engine.score(batch, outputs)


@pytest.mark.parametrize(("name", "precision"), RUNS)
def test_log_probs_of_a_ragged_batch(name: str, precision: str) -> None:
    batch = batch_for(name)
    scorer = tiny_scorer(name, precision, "packed")
    assert scorer.describe()["impl"] == "triton"
    found = scorer.engine.score(batch, Outputs())
    exact = score(name, "native", "float32", batch, Outputs())
    np.testing.assert_allclose(found.log_prob, exact.log_prob, rtol=0, atol=PACKED_BOUNDS[precision])


def test_every_output() -> None:
    batch = batch_for("bert")
    for outputs in (Outputs(rank=True, entropy=True, logit=True), Outputs(top_k=3, logits=True)):
        found, exact = (score("bert", engine, "float32", batch, outputs) for engine in ("packed", "native"))
        for column, values in vars(exact).items():
            if values is None:
                assert getattr(found, column) is None
            elif values.dtype == np.int32:
                np.testing.assert_array_equal(getattr(found, column), values)
            else:
                np.testing.assert_allclose(getattr(found, column), values, rtol=0, atol=1e-4)


def test_a_student(tmp_path: Path) -> None:
    folder, batch = make_student(tmp_path / "student", "bert", layers=1), batch_for("bert", masked=0.0)
    values = []
    for engine in ("packed", "native"):
        with mlmfast.load(folder, engine=engine, precision="float32", workers=1) as scorer:
            values.append(scorer.engine.score(batch, Outputs()).log_prob)
    np.testing.assert_allclose(values[0], values[1], rtol=0, atol=1e-4)


def test_texts_through_the_scorer() -> None:
    texts = ["We the people", "", "A"]
    found, exact = (tiny_scorer("bert", engine=engine).score(texts) for engine in ("packed", "native"))
    for own, other in zip(found, exact, strict=True):
        assert own.num_tokens == other.num_tokens
        assert own.score == (None if other.score is None else pytest.approx(other.score, abs=1e-3))


@pytest.mark.parametrize("name", ["bert", "roberta", "albert", "electra", "modernbert", "esm2"])
def test_the_forward_waits_for_nothing(name: str) -> None:
    engine = tiny_scorer(name, "float32", "packed").engine
    assert isinstance(engine, PackedEngine)
    for outputs in (Outputs(rank=True, entropy=True, logit=True), Outputs(top_k=3)):
        assert_forward_waits_for_nothing(engine, batch_for(name), outputs)


@pytest.mark.parametrize("name", ["bert", "electra", "modernbert", "esm2"])
def test_batches_padded_for_a_graph(name: str) -> None:
    """Results are those of the batch as it is, whatever was in the graph's memory before."""
    batch, outputs = batch_for(name, masked=0.05), Outputs(rank=True, entropy=True)
    expected = score(name, "packed", "float32", batch, outputs)
    with with_graphs(name, sizes=(400,)) as (engine, graphs):
        for _ in range(2):
            assert_same(engine.score(batch, outputs), expected)
            poison(graphs)
        assert len(buckets(graphs)) == 1
