"""What scoring with a student gives: the embedded model's student, long texts, shared rows, n-best lists."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from student_models import make_student
from tiny_models import read_lines, tiny_scorer

import mlmfast
from mlmfast.errors import ModelError, SettingsError
from mlmfast.models import EMBEDDED_MODEL, EMBEDDED_STUDENT, embedded_for, resolve
from mlmfast.models.source import EMBEDDED
from mlmfast.rescoring import (
    Hypothesis,
    LanguageModel,
    NBestList,
    Rescorer,
    mlm_scoring,
    rescore_lazily,
)
from mlmfast.scorer import RowCounts

TEXTS = ["the people of the nation", "", "union and liberty", "the people of the nation"]
HEADS = ("token", "cls")


@pytest.fixture
def embedded_student(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny student in the place of the embedded one."""
    folder = make_student(tmp_path / "student", "bert", layers=1)
    monkeypatch.setitem(EMBEDDED, EMBEDDED_STUDENT, folder)
    return folder


@pytest.fixture(params=HEADS)
def student(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[mlmfast.Scorer]:
    with mlmfast.load(make_student(tmp_path / "student", head=request.param), workers=1) as scorer:
        yield scorer


def test_the_embedded_student_by_its_name(embedded_student: Path) -> None:
    assert resolve(EMBEDDED_STUDENT).folder == embedded_student
    assert embedded_for(None, "student") == embedded_for(EMBEDDED_MODEL, "student") == EMBEDDED_STUDENT
    assert embedded_for("other", "student") == "other"
    assert embedded_for(None, "original") is embedded_for(None, None) is None
    with mlmfast.load(EMBEDDED_STUDENT, workers=1) as scorer:
        description = scorer.describe()
        assert (description["model"], description["student_head"]) == (EMBEDDED_STUDENT, "token")
        assert scorer.for_masking("student") is scorer
    with pytest.raises(ModelError, match="has no revision 'main'"):
        resolve(EMBEDDED_STUDENT, revision="main")


def test_the_embedded_model_scores_with_its_student(embedded_student: Path) -> None:
    with (
        mlmfast.load(workers=1) as scorer,
        mlmfast.load(embedded_student, workers=1) as expected,
    ):
        assert scorer.for_masking("original") is scorer.for_masking(None) is scorer
        student = scorer.for_masking("student")
        assert student is scorer.for_masking("student")
        assert student.files.source.name == EMBEDDED_STUDENT
        counts = RowCounts()
        assert scorer.score(TEXTS, "student", counts=counts) == expected.score(TEXTS)
        assert (counts.num_rows, counts.num_computed) == (3, 2)
        assert next(scorer.score_groups([TEXTS], "student")) == expected.score(TEXTS)
        assert scorer.score(TEXTS[:1])[0].masking == "original"
    with pytest.raises(SettingsError, match="was closed"):
        student.score(["a"])


def test_the_students_name_its_head_in_every_result(student: mlmfast.Scorer) -> None:
    head = student.files.config.student_head
    results = student.score([*TEXTS, "x " * 200], on_error="skip")
    assert [r.student_head for r in results] == [head] * 5
    assert [r.score is None for r in results] == [False, True, False, False, True]
    assert tiny_scorer("bert").score(TEXTS[:1])[0].student_head is None


def test_rows_of_equal_texts_are_computed_once(student: mlmfast.Scorer) -> None:
    counts = RowCounts()
    first, empty, _, again = student.score(TEXTS, counts=counts)
    assert (counts.num_rows, counts.num_computed) == (3, 2)
    assert first == again
    assert empty.flags == ("empty",)


def test_a_truncated_text_scores_as_what_is_left_of_it(student: mlmfast.Scorer) -> None:
    words = " ".join(read_lines("inaugural.txt")[:20]).split()
    result = student.score([" ".join(words)], overlong="truncate")[0]
    assert result.flags == ("truncated",)
    assert result.num_tokens == student.engine.max_length - 2
    kept = result.text[: result.end]
    assert result.num_words == len(kept.split()) < len(words)
    short = student.score([kept])[0]
    assert (short.score, short.num_tokens) == (result.score, result.num_tokens)


def test_windows_of_a_token_student(tmp_path: Path) -> None:
    with mlmfast.load(make_student(tmp_path / "student"), workers=1) as scorer:
        text = " ".join(["people"] * 100)
        num_tokens = scorer.files.tokenizer.encode([text]).lengths[0] - 2
        result = scorer.score([text], overlong="window")[0]
        assert result.flags == ("windowed",)
        assert result.num_tokens == num_tokens > scorer.engine.max_length
        assert result.num_rows > 1
        assert result.score == pytest.approx(sum(t.log_prob for t in result.tokens), abs=1e-3)


def test_totals(student: mlmfast.Scorer) -> None:
    totals = student.totals(TEXTS)
    results = student.score(TEXTS)
    assert totals.num_tokens == sum(r.num_tokens for r in results)
    assert totals.score == pytest.approx(sum(r.score or 0.0 for r in results))
    assert totals.num_words == 13


def some_lists() -> list[NBestList]:
    texts = ("the people of union", "", "the people of the nation", "liberty")
    numbered = enumerate(texts, 1)
    return [NBestList("a", tuple(Hypothesis(n, text, {"first_pass": -n / 8}) for n, text in numbered))]


def test_lists_rescored_by_a_student(student: mlmfast.Scorer) -> None:
    model = LanguageModel(student, score_eos=False)
    assert model.options()["masking"] == "student"
    assert model.settings()["environment"]["student_head"] == student.files.config.student_head
    (rescored,) = Rescorer([model], mlm_scoring({"mlm": 1.0})).rescore_lists(some_lists())
    texts = [hypothesis.text for hypothesis in some_lists()[0].hypotheses]
    scores = [result.score for result in student.score(texts)]
    assert rescored.features["mlm"] == tuple(scores)
    totals = {i: s - (i + 1) / 8 for i, s in enumerate(scores) if s is not None}
    best = sorted(totals, key=lambda i: -totals[i])
    assert rescored.order == (best[0], 1, *best[1:])


def test_the_embedded_models_student_in_lists(embedded_student: Path) -> None:
    with mlmfast.load(workers=1) as scorer:
        model = LanguageModel(scorer, masking="student")
        assert model.scorer is scorer.for_masking("student")
        assert model.settings()["environment"]["model"] == EMBEDDED_STUDENT
        assert LanguageModel(scorer).options()["masking"] == "original"


def test_lazy_rescoring_needs_log_probabilities(student: mlmfast.Scorer) -> None:
    rescorer = Rescorer([LanguageModel(student)], mlm_scoring({"mlm": 1.0}))
    with pytest.raises(SettingsError, match="a student's values may be above 0"):
        rescore_lazily(rescorer, some_lists())
