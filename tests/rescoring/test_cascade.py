"""A cascade: the student orders a list, exact scores decide among its best hypotheses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hash_engine import scorer_of
from student_models import make_student
from test_rescorer import LONG, nbest, random_lists

import mlmfast
from mlmfast.errors import InputError, SettingsError
from mlmfast.rescoring import (
    Cascade,
    LanguageModel,
    NBestList,
    Normalisation,
    RescoredList,
    Rescorer,
    mlm_scoring,
    rescore_in_cascade,
)
from mlmfast.rescoring.cascade import CascadeCounts
from mlmfast.scorer import Scorer

LISTS = random_lists(7, 40)
WEIGHTS = mlm_scoring({"mlm": 0.05}, Normalisation.parse("gnmt:0.6"))


@pytest.fixture(scope="module")
def exact() -> Iterator[Scorer]:
    with scorer_of() as scorer:
        yield scorer


@pytest.fixture(scope="module", params=["token", "cls"])
def student(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LanguageModel]:
    folder = make_student(tmp_path_factory.mktemp("student"), head=request.param)
    with mlmfast.load(folder, workers=1) as scorer:
        yield LanguageModel(scorer, name="fast")


def in_cascade(
    rescorer: Rescorer, student: LanguageModel, best: int, lists: list[NBestList]
) -> list[RescoredList]:
    return list(rescore_in_cascade(rescorer, Cascade(student, best), lists))


@pytest.mark.parametrize("missing", ["first_pass_rank", "last"])
def test_as_many_as_the_list_has_is_full_rescoring(
    exact: Scorer, student: LanguageModel, missing: str
) -> None:
    rescorer = Rescorer([LanguageModel(exact)], replace(WEIGHTS, missing=missing))
    for best in (5, 100):
        found = in_cascade(rescorer, student, best, LISTS)
        for cascaded, full in zip(found, rescorer.rescore_lists(LISTS), strict=True):
            assert (cascaded.nbest, cascaded.order, cascaded.scores) == (full.nbest, full.order, full.scores)
            assert cascaded.features["mlm"] == full.features["mlm"]


@pytest.mark.parametrize("missing", ["first_pass_rank", "last"])
def test_one_gives_the_winner_of_the_student(exact: Scorer, student: LanguageModel, missing: str) -> None:
    weights = replace(WEIGHTS, missing=missing)
    alone = Rescorer([replace(student, name="mlm")], weights)
    found = in_cascade(Rescorer([LanguageModel(exact)], weights), student, 1, LISTS)
    for cascaded, ordered in zip(found, alone.rescore_lists(LISTS), strict=True):
        assert cascaded.order == ordered.order
        assert cascaded.features["fast"] == ordered.features["mlm"]


@pytest.mark.parametrize("best", [1, 2, 3])
def test_the_best_by_their_exact_totals_then_the_others(
    exact: Scorer, student: LanguageModel, best: int
) -> None:
    rescorer = Rescorer([LanguageModel(exact)], WEIGHTS)
    ordered = Rescorer([replace(student, name="mlm")], WEIGHTS).rescore_lists(LISTS)
    changed = 0
    for cascaded, first, full in zip(
        in_cascade(rescorer, student, best, LISTS), ordered, rescorer.rescore_lists(LISTS), strict=True
    ):
        empty = [i for i, hypothesis in enumerate(first.nbest.hypotheses) if not hypothesis.text]
        ranked = [i for i in first.order if i not in empty]
        chosen, rest = ranked[:best], ranked[best:]
        by_total = sorted(chosen, key=lambda i: (-full.scores[i], i))
        assert [i for i in cascaded.order if i not in empty] == by_total + rest
        assert [cascaded.order.index(i) for i in empty] == empty
        for place in range(len(first.order)):
            kept = place in chosen
            assert cascaded.scores[place] == (full.scores[place] if kept else None)
            assert cascaded.features["mlm"][place] == (full.features["mlm"][place] if kept else None)
        changed += by_total != chosen
    assert changed > 0 or best == 1


def test_several_models_and_the_rows_of_each(exact: Scorer, student: LanguageModel) -> None:
    models = [LanguageModel(exact, name="a"), LanguageModel(exact, name="b", masking="none")]
    rescorer = Rescorer(models, mlm_scoring({"a": 0.1, "b": 0.1}))
    counts = CascadeCounts()
    found = list(rescore_in_cascade(rescorer, Cascade(student, 2), LISTS, counts))
    texts = [[h.text for h in nbest.hypotheses] for nbest in LISTS]
    assert counts.num_hypotheses == sum(map(len, texts))
    assert counts.num_exact == sum(min(2, len(t)) for t in texts)
    assert counts.student.num_rows == sum(bool(text) for t in texts for text in t)
    assert counts.student.num_computed <= len({text for t in texts for text in t if text})
    assert rescorer.counts.num_texts == counts.num_hypotheses + counts.num_exact
    for rescored in found:
        assert list(rescored.features) == ["a", "b", "fast"]
        hypotheses = rescored.nbest.hypotheses
        assert [s is None for s in rescored.features["a"]] == [not h.text for h in hypotheses]


def test_lists_come_as_a_stream(exact: Scorer, student: LanguageModel) -> None:
    taken = []

    def lists() -> Iterator[NBestList]:
        for index in range(10_000):
            taken.append(index)
            yield nbest(f"u{index}", f"the people {index}", f"people the {index}")

    rescorer = Rescorer([LanguageModel(exact)], WEIGHTS)
    first = next(rescore_in_cascade(rescorer, Cascade(student, 1), lists()))
    assert first.nbest.id == "u0"
    assert len(taken) < 8_000


def test_texts_that_cannot_be_scored(exact: Scorer, student: LanguageModel) -> None:
    lists = [nbest("u", "the people", LONG, "order")]
    for best, errors in ((1, 1), (3, 1)):
        rescorer = Rescorer([LanguageModel(exact)], WEIGHTS, on_error="skip")
        (found,) = in_cascade(rescorer, student, best, lists)
        assert rescorer.counts.num_errors == errors
        assert found.order[1] == 1
        assert found.scores[1] is found.features["mlm"][1] is found.features["fast"][1] is None
        with pytest.raises(InputError, match=r"list 'u', hypothesis 2: .* tokens, but the model takes"):
            in_cascade(Rescorer([LanguageModel(exact)], WEIGHTS), student, best, lists)


def test_what_does_not_fit_is_refused(exact: Scorer, student: LanguageModel) -> None:
    model = LanguageModel(exact)
    for best in (0, -1, 1.5, True):
        with pytest.raises(SettingsError, match="a whole number, from 1"):
            Cascade(student, best)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="'mlm' is no student"):
        Cascade(model, 1)
    with pytest.raises(SettingsError, match="both named 'fast'"):
        rescore_in_cascade(
            Rescorer([replace(model, name="fast")], mlm_scoring({"fast": 1.0})), Cascade(student, 1), []
        )
    with pytest.raises(SettingsError, match="there is none; name one"):
        rescore_in_cascade(Rescorer([], mlm_scoring({})), Cascade(student, 1), [])


def test_settings_name_the_student(student: LanguageModel) -> None:
    settings = Cascade(student, 3).settings()
    assert settings["best"] == 3
    assert settings["models"]["fast"]["masking"] == "student"


def test_an_empty_list(exact: Scorer, student: LanguageModel) -> None:
    (found,) = in_cascade(Rescorer([LanguageModel(exact)], WEIGHTS), student, 2, [nbest("none")])
    assert (found.order, found.scores) == ((), ())
    assert found.features == {"mlm": (), "fast": ()}
