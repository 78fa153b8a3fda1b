"""A student orders every list; the models proper decide among its best hypotheses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlmfast.errors import SettingsError
from mlmfast.rescoring.combination import placed
from mlmfast.rescoring.features import LanguageModelScores
from mlmfast.rescoring.language_model import LanguageModel, ScoredText, SharingCounts
from mlmfast.rescoring.lists import NBestList, RescoredList
from mlmfast.rescoring.normalisation import Float64Array
from mlmfast.rescoring.rescorer import Rescorer, ScoredList, numbers, score_columns
from mlmfast.types import Int64Array


@dataclass(frozen=True)
class Cascade:
    """student: what orders a list; its scores are added to the lists under its name. best: so many
    hypotheses of each list get exact scores."""

    student: LanguageModel
    best: int

    def __post_init__(self) -> None:
        """Raises SettingsError for a model that is no student, or for no hypotheses."""
        if self.student.masking != "student":
            raise SettingsError(
                f"{self.student.name!r} is no student; name one to order the lists of a cascade"
            )
        if not isinstance(self.best, int) or isinstance(self.best, bool) or self.best < 1:
            raise SettingsError(f"a cascade to the best {self.best!r}; expected a whole number, from 1")

    def settings(self) -> dict[str, Any]:
        """What the order of a list depends on."""
        return {"best": self.best, "models": {self.student.name: self.student.settings()}}


@dataclass
class CascadeCounts:
    """num_hypotheses: of all lists; num_exact: those that got exact scores, whose rows the rescorer counts.
    student: the rows of the student."""

    num_hypotheses: int = 0
    num_exact: int = 0
    student: SharingCounts = field(default_factory=SharingCounts)


@dataclass(frozen=True)
class StudentOrder:
    """A list as the student orders it. results: its own; ranked int64[p]: the hypotheses that have a total
    with them, best first."""

    scored: ScoredList
    results: list[ScoredText]
    ranked: Int64Array

    def candidates(self, best: int) -> Int64Array:
        """int64[k], ascending: the best hypotheses; those without a total come last."""
        others = np.setdiff1d(np.arange(len(self.results)), self.ranked)
        return np.sort(np.concatenate([self.ranked, others])[:best])


def rescore_in_cascade(
    rescorer: Rescorer, cascade: Cascade, lists: Iterable[NBestList], counts: CascadeCounts | None = None
) -> Iterator[RescoredList]:
    """Every list with its best hypotheses, by the student, in the order of their exact totals, and the others
    after them in the student's order.

    The student stands in for the last model of the rescorer, with its weight and normalisation; the other
    models score in full. Only the best have a total and a score of the last model; all have the student's
    score. Hypotheses that cannot be scored go where `weights.missing` says. Raises SettingsError without a
    model or where the student has the name of one, InputError as `Rescorer.rescore_lists` does.
    """
    if not rescorer.models:
        raise SettingsError("a cascade saves rows of a language model, but there is none; name one")
    if cascade.student.name in [model.name for model in rescorer.models]:
        raise SettingsError(
            f"the student and a model are both named {cascade.student.name!r}; name one otherwise"
        )
    counts = CascadeCounts() if counts is None else counts
    scored = rescorer.score_with(rescorer.models[:-1], lists)
    return decided(rescorer, cascade, ordered(rescorer, cascade.student, scored, counts), counts)


def ordered(
    rescorer: Rescorer, student: LanguageModel, lists: Iterable[ScoredList], counts: CascadeCounts
) -> Iterator[StudentOrder]:
    texts = ((scored, [hypothesis.text for hypothesis in scored.nbest.hypotheses]) for scored in lists)
    for scored, results in student.score_beside(texts, counts.student):
        totals = totals_with(rescorer, scored, score_columns(results))
        yield StudentOrder(scored, results, by_total(totals))


def by_total(totals: Float64Array) -> Int64Array:
    """The hypotheses that have a total, float64[H], best first, ties to the lower number."""
    order = np.argsort(-totals, kind="stable")  # NaN last
    return order[: np.count_nonzero(~np.isnan(totals))]


def totals_with(rescorer: Rescorer, scored: ScoredList, scores: LanguageModelScores) -> Float64Array:
    """float64[H]: the totals with the last model's scores, NaN where one is missing."""
    name = rescorer.models[-1].name
    return rescorer.ranking(ScoredList(scored.nbest, {**scored.scores, name: scores})).scores


def decided(
    rescorer: Rescorer, cascade: Cascade, lists: Iterable[StudentOrder], counts: CascadeCounts
) -> Iterator[RescoredList]:
    model = rescorer.models[-1]

    def candidates() -> Iterator[tuple[tuple[StudentOrder, Int64Array], list[str]]]:
        for order in lists:
            chosen = order.candidates(cascade.best)
            hypotheses = order.scored.nbest.hypotheses
            counts.num_hypotheses += len(hypotheses)
            counts.num_exact += len(chosen)
            yield (order, chosen), [hypotheses[index].text for index in chosen]

    for (order, chosen), exact in model.score_beside(candidates(), rescorer.counts):
        results = [ScoredText(None, 0, 0, None)] * len(order.results)
        for index, result in zip(chosen.tolist(), exact, strict=True):
            results[index] = result
        refuse_unscored(rescorer, order, results, set(chosen.tolist()))
        yield in_new_order(rescorer, cascade.student.name, order, chosen, score_columns(results))


def in_new_order(
    rescorer: Rescorer, student: str, order: StudentOrder, chosen: Int64Array, exact: LanguageModelScores
) -> RescoredList:
    """exact: the scores of the last model, NaN but for those that are chosen, int64[k]."""
    scored = order.scored
    totals = totals_with(rescorer, scored, exact)
    others = order.ranked[~np.isin(order.ranked, chosen)]
    new_order = placed(np.concatenate([by_total(totals), others]), len(totals), rescorer.weights.missing)
    scores = {**scored.scores, rescorer.models[-1].name: exact, student: score_columns(order.results)}
    return RescoredList(
        scored.nbest,
        tuple(new_order.tolist()),
        numbers(totals),
        {name: numbers(found.scores) for name, found in scores.items()},
    )


def refuse_unscored(
    rescorer: Rescorer, order: StudentOrder, exact: list[ScoredText], chosen: set[int]
) -> None:
    """Of a hypothesis that is not among the best, the student's error counts."""
    for index, hypothesis in enumerate(order.scored.nbest.hypotheses):
        error = exact[index].error if index in chosen else order.results[index].error
        if error is not None:
            rescorer.refuse(order.scored.nbest, hypothesis, error)
