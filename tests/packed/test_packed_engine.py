"""The packed engine on a CPU, with the plain twins of its kernels: every model and masking end to end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from random_batches import random_batch
from student_models import make_student
from test_agreement import (
    MASKINGS,
    PROTEIN,
    PROTEINS,
    assert_agrees,
    content_of_length,
    reference_scores,
    texts_for,
)
from test_native_engine import word_safe
from test_students import plain_values
from tiny_models import MODELS, NATIVE, PACKED_BOUNDS, read_lines, tiny_scorer

import mlmfast
from mlmfast.engines import Outputs
from mlmfast.engines.packed.engine import DTYPES
from mlmfast.errors import SettingsError, TextTooLongError
from mlmfast.scheduling.batches import joined, rows_between
from mlmfast.types import RowBatch, TargetOutputs

EXACT = 1e-4
INVARIANCE = 5e-5
TRAINED = {"float32": (1e-4, 1e-5), "bfloat16": (0.1, 0.01), "float16": (0.02, 0.002)}
"""Worst and mean on the embedded model: measured 7e-6 and 2e-6, 0.05 and 0.005, 0.006 and 0.0006."""
EVERYTHING = Outputs(rank=True, entropy=True, top_k=3, logit=True, logits=True)


def log_probs(results: list[mlmfast.TextScore]) -> np.ndarray:
    return np.array([token.log_prob for result in results for token in result.tokens])


@pytest.mark.parametrize("masking", MASKINGS)
@pytest.mark.parametrize("name", NATIVE)
def test_every_model_and_masking(name: str, masking: str) -> None:
    """Against the float64 loop and the native engine, texts of one token and of none among them."""
    texts = word_safe(name, masking)
    found = tiny_scorer(name, engine="packed").score(texts, masking)
    for text, result in zip(texts, found, strict=True):
        assert_agrees(result, reference_scores(name, text, masking), EXACT)
    native = tiny_scorer(name, engine="native").score(texts, masking)
    np.testing.assert_allclose(log_probs(found), log_probs(native), rtol=0, atol=EXACT)


@pytest.mark.parametrize("name", NATIVE[:10])
def test_the_longest_text_and_one_over(name: str) -> None:
    scorer = tiny_scorer(name, engine="packed")
    limit = scorer.engine.max_length
    assert limit == tiny_scorer(name, engine="native").engine.max_length
    text = content_of_length(name, limit)
    assert_agrees(scorer.score([text])[0], reference_scores(name, text, "original"), EXACT)
    with pytest.raises(TextTooLongError):
        scorer.score([content_of_length(name, limit + 1)])


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", NATIVE[:10])
def test_low_precision_on_every_model(name: str, precision: str) -> None:
    exact = log_probs(tiny_scorer(name, engine="native").score(texts_for(name)))
    found = log_probs(tiny_scorer(name, precision, "packed").score(texts_for(name)))
    assert 0 < np.abs(found - exact).max() < PACKED_BOUNDS[precision]


@pytest.mark.parametrize("precision", DTYPES)
def test_precision_on_real_text(precision: str) -> None:
    texts = read_lines("inaugural.txt")[:12]
    with (
        mlmfast.load(engine="native", precision="float32", workers=1) as exact,
        mlmfast.load(engine="packed", precision=precision, workers=1) as scorer,
    ):
        errors = np.abs(log_probs(scorer.score(texts)) - log_probs(exact.score(texts)))
    worst, mean = TRAINED[precision]
    assert errors.max() < worst
    assert errors.mean() < mean


@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert", "esm2", "albert"])
def test_scores_do_not_depend_on_the_batch(name: str) -> None:
    texts = (
        PROTEINS * 2
        if name in PROTEIN
        else [" ".join(t.split()[:9]) for t in read_lines("inaugural.txt")[:16]]
    )
    together = log_probs(tiny_scorer(name, engine="packed").score(texts))
    order = np.random.default_rng(0).permutation(len(texts))
    shuffled = tiny_scorer(name, engine="packed").score([texts[i] for i in order])
    others = [
        log_probs([shuffled[i] for i in np.argsort(order)]),
        np.concatenate([log_probs(tiny_scorer(name, engine="packed").score([text])) for text in texts]),
    ]
    for budget, workers in ((1, 1), (70, 3)):
        with mlmfast.load(
            MODELS / name, engine="packed", precision="float32", max_batch_tokens=budget, workers=workers
        ) as scorer:
            others.append(log_probs(scorer.score(texts)))
    for other in others:
        np.testing.assert_allclose(other, together, rtol=0, atol=INVARIANCE)


@pytest.mark.parametrize("head", ["token", "cls"])
@pytest.mark.parametrize(
    ("name", "precision"),
    [*((name, "float32") for name in NATIVE[:10]), ("bert", "bfloat16"), ("modernbert", "float16")],
)
def test_students(name: str, head: str, precision: str, tmp_path: Path) -> None:
    folder = make_student(tmp_path / "student", name, head)
    texts = [text for text in texts_for(name) if text]
    with mlmfast.load(folder, engine="packed", precision=precision, workers=1) as scorer:
        for text, result in zip(texts, scorer.score(texts), strict=True):
            expected = plain_values(folder, name, text)
            found = [t.log_prob for t in result.tokens] if head == "token" else [result.score]
            np.testing.assert_allclose(found, expected, rtol=0, atol=PACKED_BOUNDS[precision])


@pytest.mark.parametrize("name", ["bert", "distilbert", "albert", "modernbert"])
def test_a_model_of_one_layer(name: str, tmp_path: Path) -> None:
    folder = make_student(tmp_path / "student", name, layers=1)
    text = texts_for(name)[0]
    with mlmfast.load(folder, engine="packed", precision="float32", workers=1) as scorer:
        found = [t.log_prob for t in scorer.score([text])[0].tokens]
    np.testing.assert_allclose(found, plain_values(folder, name, text, 1), rtol=0, atol=EXACT)


def batch_for(name: str, **options: object) -> RowBatch:
    special = tiny_scorer(name).files.tokenizer.special
    assert special.mask_id is not None
    return random_batch(
        [5, 1, 1, 17, 2, 40], 30, vocab_size=30, mask_id=special.mask_id, with_types=name == "bert", **options
    )


def score(name: str, engine: str, batch: RowBatch, outputs: Outputs) -> TargetOutputs:
    return tiny_scorer(name, engine=engine).engine.score(batch, outputs)


@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert", "esm2", "electra"])
def test_every_output_of_ragged_rows(name: str) -> None:
    """Rows of one token, of masks alone, without targets; several targets at a place; padding inside rows."""
    batch = batch_for(name)
    found, native = (score(name, engine, batch, EVERYTHING) for engine in ("packed", "native"))
    for column, values in vars(native).items():
        own = getattr(found, column)
        if values is None:
            assert own is None
            continue
        assert own.dtype == values.dtype
        if values.dtype == np.int32:
            np.testing.assert_array_equal(own, values)
        else:
            np.testing.assert_allclose(own, values, rtol=0, atol=EXACT)
    assert found.logits is not None
    assert found.logit is not None
    assert np.array_equal(found.logits[np.arange(batch.num_targets), batch.target_ids], found.logit)
    alone = score(name, "packed", batch, Outputs(logit=True))
    assert alone.logits is None
    assert alone.logit is not None
    np.testing.assert_allclose(alone.logit, found.logit, rtol=0, atol=1e-5)


@pytest.mark.parametrize("outputs", [Outputs(), EVERYTHING])
@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert", "esm2"])
def test_batches_without_targets(name: str, outputs: Outputs) -> None:
    batch = batch_for(name, most_targets=0)
    assert batch.num_targets == 0
    some = score(name, "packed", batch_for(name), outputs)
    for empty in (batch, rows_between(batch, 0, 0)):
        found = score(name, "packed", empty, outputs)
        assert {name for name, column in vars(found).items() if column is not None} == {
            name for name, column in vars(some).items() if column is not None
        }
        assert all(len(column) == 0 for column in vars(found).values() if column is not None)


def test_rows_in_parts_are_the_rows_together() -> None:
    batch = batch_for("bert")
    together = score("bert", "packed", batch, EVERYTHING)
    parts = [rows_between(batch, 0, 7), rows_between(batch, 7, 8), rows_between(batch, 8, batch.num_rows)]
    apart = joined([score("bert", "packed", part, EVERYTHING) for part in parts])
    for name, column in vars(together).items():
        if column is not None:
            np.testing.assert_allclose(getattr(apart, name), column, rtol=0, atol=INVARIANCE)


def test_a_student_has_values_alone(tmp_path: Path) -> None:
    folder = make_student(tmp_path / "student", "bert")
    batch = replace(batch_for("bert", masked=0.0), mask_token_id=-1)
    with mlmfast.load(folder, engine="packed", precision="float32", workers=1) as scorer:
        assert scorer.engine.score(batch, Outputs()).log_prob.shape == (batch.num_targets,)
        for outputs in (Outputs(rank=True), Outputs(logits=True)):
            with pytest.raises(SettingsError, match="a student gives values alone"):
                scorer.engine.score(batch, outputs)


def test_what_a_result_file_says() -> None:
    described = tiny_scorer("bert", "float16", "packed").describe()
    assert (described["engine"], described["precision"], described["device"]) == ("packed", "float16", "cpu")
    assert described["impl"] == "torch"
    assert "torch" in described["versions"]
