"""The façade: first-pass lists in, lists in a new order out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from mlmfast.errors import InputError, SettingsError
from mlmfast.rescoring.combination import Ranking, combine
from mlmfast.rescoring.features import LanguageModelScores, feature_matrix
from mlmfast.rescoring.language_model import LanguageModel, ScoredText, SharingCounts
from mlmfast.rescoring.lists import Hypothesis, NBestList, RescoredList
from mlmfast.rescoring.memory_lists import list_in_memory
from mlmfast.rescoring.normalisation import Float64Array
from mlmfast.rescoring.weights import Weights
from mlmfast.scoring import ON_ERROR

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScoredList:
    """A list and its language-model scores by the name of the model."""

    nbest: NBestList
    scores: Mapping[str, LanguageModelScores] = field(default_factory=dict)


class Rescorer:
    """Rescores lists with language models, or with features of the lists alone.

    models: in the order in which their scores are added to the lists; none where the weights name none.
    weights: every model must be one of their terms, and every `lm` term a model. on_error: what to do with
    hypotheses that cannot be scored: `raise`, after the lists before it, or `skip`: they have no total, as
    empty ones have none, and go where `weights.missing` says. counts: filled in as the lists are scored.

    Raises SettingsError for models that are not those of the weights. Use from several threads is safe but
    for the counts.
    """

    def __init__(
        self,
        models: Sequence[LanguageModel],
        weights: Weights,
        *,
        on_error: str = "raise",
        counts: SharingCounts | None = None,
    ) -> None:
        names = [model.name for model in models]
        terms = [term.name for term in weights.terms if term.kind == "lm"]
        if sorted(names) != sorted(terms):
            raise SettingsError(
                f"the weights are for the language models {', '.join(terms) or 'none'}, but "
                f"{', '.join(names) or 'none'} came; give each model its name and a weight"
            )
        if on_error not in ON_ERROR:
            raise SettingsError(f"unknown on_error {on_error!r}; expected one of {', '.join(ON_ERROR)}")
        self.models = tuple(models)
        self.weights = weights
        self.on_error = on_error
        self.counts = SharingCounts() if counts is None else counts

    def rescore(
        self, hypotheses: Iterable[str], scores: Iterable[float] | Mapping[str, Iterable[float]]
    ) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
        """One list in memory, in first-pass order: the indices of its hypotheses, best first, and the new
        total of each in the list's own order, None where there is none.

        scores: the first-pass log-probability of each hypothesis, in nats; or such by the name of the
        feature, `first_pass` among them. Raises SettingsError for anything else than texts and numbers of
        one count, InputError for a hypothesis that cannot be scored.
        """
        rescored = next(self.rescore_lists([list_in_memory(hypotheses, scores)]))
        return rescored.order, rescored.scores

    def rescore_lists(self, lists: Iterable[NBestList]) -> Iterator[RescoredList]:
        """Every list with its new order and its models' scores, in the order they come, as a stream.

        Raises InputError, which names the list, for a hypothesis that cannot be scored or lacks a feature.
        """
        return (self.ranked(scored) for scored in self.score_lists(lists))

    def score_lists(self, lists: Iterable[NBestList]) -> Iterator[ScoredList]:
        """Every list with the scores of all models."""
        return self.score_with(self.models, lists)

    def score_with(self, models: Sequence[LanguageModel], lists: Iterable[NBestList]) -> Iterator[ScoredList]:
        """Every list with the scores of some models, each of which is a window of texts ahead of the next."""
        scored: Iterator[ScoredList] = (ScoredList(nbest) for nbest in lists)
        for model in models:
            scored = self._with_scores(model, scored)
        return scored

    def _with_scores(self, model: LanguageModel, lists: Iterable[ScoredList]) -> Iterator[ScoredList]:
        texts = ((scored, [hypothesis.text for hypothesis in scored.nbest.hypotheses]) for scored in lists)
        for scored, results in model.score_beside(texts, self.counts):
            for hypothesis, result in zip(scored.nbest.hypotheses, results, strict=True):
                if result.error is not None:
                    self.refuse(scored.nbest, hypothesis, result.error)
            yield ScoredList(scored.nbest, {**scored.scores, model.name: score_columns(results)})

    def refuse(self, nbest: NBestList, hypothesis: Hypothesis, reason: str) -> None:
        """Raises InputError for a hypothesis that cannot be scored, or logs it under on_error="skip"."""
        error = InputError(reason, where=place_of(nbest, hypothesis))
        if self.on_error == "raise":
            raise error
        self.counts.num_errors += 1
        logger.warning("skipped: %s", error)

    def features(self, scored: ScoredList) -> Float64Array:
        """float64[H, F], the list's features in the order of the weights' terms."""
        try:
            return feature_matrix(scored.nbest.hypotheses, self.weights.terms, scored.scores)
        except InputError as error:
            raise InputError(str(error), where=place_of(scored.nbest)) from error

    def ranked(self, scored: ScoredList) -> RescoredList:
        """A scored list in its new order."""
        ranking = self.ranking(scored)
        return RescoredList(
            scored.nbest,
            tuple(ranking.order.tolist()),
            numbers(ranking.scores),
            {name: numbers(found.scores) for name, found in scored.scores.items()},
        )

    def ranking(self, scored: ScoredList) -> Ranking:
        """The totals of a scored list and its new order. Raises InputError, which names the list."""
        features = self.features(scored)
        try:
            return combine(features, self.weights.values, missing=self.weights.missing)
        except InputError as error:
            raise InputError(str(error), where=place_of(scored.nbest)) from error

    def settings(self) -> dict[str, Any]:
        """What the models' scores depend on, as a weights file keeps it (see `Weights.check`): precision,
        versions and names of models stand under `environment` and may differ."""
        models = {model.name: model.settings() for model in self.models}
        environment = {name: settings.pop("environment") for name, settings in models.items()}
        return {"models": models, "environment": {"models": environment}}


def score_columns(results: Sequence[ScoredText]) -> LanguageModelScores:
    scores = [np.nan if result.score is None else result.score for result in results]
    num_tokens = [result.num_tokens for result in results]
    return LanguageModelScores(np.array(scores, dtype=np.float64), np.array(num_tokens, dtype=np.int64))


def numbers(values: Float64Array) -> tuple[float | None, ...]:
    """The values, None for NaN."""
    return tuple(None if np.isnan(value) else value for value in values.tolist())


def place_of(nbest: NBestList, hypothesis: Hypothesis | None = None) -> str:
    """Where a list or one of its hypotheses stands, for an error."""
    parts = chain(
        [f"list {nbest.id!r}"],
        [] if nbest.line is None else [f"line {nbest.line}"],
        [] if hypothesis is None else [f"hypothesis {hypothesis.number}"],
    )
    return ", ".join(parts)
