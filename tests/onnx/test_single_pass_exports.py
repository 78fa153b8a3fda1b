"""Students as graphs, by themselves and through the onnx engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from student_models import make_student
from test_agreement import texts_for
from tiny_models import read_lines

import mlmfast
from mlmfast.engines.onnx_engine import open_session
from mlmfast.scheduling.batches import pad
from mlmfast.scorer import open_model

TEXTS = [*read_lines("inaugural.txt")[:6], "", "a", "The [MASK] of the people"]
Export = Callable[..., Path]
FAMILIES = ("roberta", "distilbert", "albert", "electra", "mpnet", "deberta-v2", "modernbert", "esm2")
"""Beside bert; other models have the code of one of these."""


def test_a_token_student_scores_as_in_torch(exported: Export, students: dict[str, Path]) -> None:
    with (
        mlmfast.load(students["token"], engine="torch", workers=1) as torch_scorer,
        mlmfast.load(exported(students["token"], "single-pass"), workers=1) as scorer,
    ):
        assert scorer.default_masking == "student"
        for found, expected in zip(scorer.score(TEXTS), torch_scorer.score(TEXTS), strict=True):
            assert (found.num_tokens, found.flags, found.student_head) == (
                expected.num_tokens,
                expected.flags,
                "token",
            )
            assert [t.log_prob for t in found.tokens] == pytest.approx(
                [t.log_prob for t in expected.tokens], abs=1e-4
            )


@pytest.mark.parametrize("name", FAMILIES)
def test_students_of_other_families_score_as_in_torch(name: str, exported: Export, tmp_path: Path) -> None:
    student = make_student(tmp_path / "student", name, head="token")
    texts = texts_for(name)
    with (
        mlmfast.load(student, engine="torch", workers=1) as torch_scorer,
        mlmfast.load(exported(student, "single-pass"), workers=1) as scorer,
    ):
        found, expected = (
            [token.log_prob for result in one.score(texts) for token in result.tokens]
            for one in (scorer, torch_scorer)
        )
    assert len(expected) > 50
    assert found == pytest.approx(expected, abs=1e-4)


def test_a_cls_student_scores_as_in_torch(exported: Export, students: dict[str, Path]) -> None:
    with (
        mlmfast.load(students["cls"], engine="torch", workers=1) as torch_scorer,
        mlmfast.load(exported(students["cls"], "single-pass"), workers=1) as scorer,
    ):
        for found, expected in zip(scorer.score(TEXTS), torch_scorer.score(TEXTS), strict=True):
            assert found.tokens == ()
            assert found.score == (
                None if expected.score is None else pytest.approx(expected.score, abs=1e-4)
            )


def test_outputs_are_zero_where_nothing_is_scored(exported: Export, students: dict[str, Path]) -> None:
    session = open_session(exported(students["token"], "single-pass") / "model.onnx")
    assert [output.name for output in session.get_outputs()] == ["token_scores", "score"]
    tokenizer = open_model(students["token"]).tokenizer
    texts = tokenizer.encode(TEXTS)
    longest = int(texts.lengths.max())
    ids = pad(texts.input_ids, texts.offsets.astype(np.int32), longest, tokenizer.special.pad_id)
    mask = (np.arange(longest) < texts.lengths[:, None]).astype(np.int64)
    token_scores, score = session.run(None, {"input_ids": ids, "attention_mask": mask})
    scored = np.zeros_like(mask, dtype=bool)
    scored[mask == 1] = texts.word_ids != -1
    assert (token_scores[~scored] == 0).all()
    assert (token_scores[scored] != 0).all()
    np.testing.assert_allclose(score, token_scores.sum(axis=1), rtol=1e-5)
    assert score[TEXTS.index("")] == 0


def test_cls_graphs_have_one_output(exported: Export, students: dict[str, Path]) -> None:
    session = open_session(exported(students["cls"], "single-pass") / "model.onnx")
    assert [output.name for output in session.get_outputs()] == ["score"]


def test_a_single_pass_export_takes_no_other_masking(exported: Export, students: dict[str, Path]) -> None:
    with (
        mlmfast.load(exported(students["token"], "single-pass"), workers=1) as scorer,
        pytest.raises(mlmfast.SettingsError, match="student model; masking 'original'"),
    ):
        scorer.score(TEXTS, "original")
