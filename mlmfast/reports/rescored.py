"""The report of `mlmfast rescore`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mlmfast.errors import InputError, SettingsError
from mlmfast.reports.chosen_lists import (
    FIRST_PASS,
    ChosenList,
    choices_of,
    heat_maps_of,
    lean,
    oracle_name,
    weight_rows,
    without_reference,
)
from mlmfast.reports.contents import Figure, Judgement, Report, WeightCurve
from mlmfast.reports.curves import weight_curves
from mlmfast.reports.utterances import utterances_of
from mlmfast.rescoring.bootstrap import Comparison, blocks_of, compare
from mlmfast.rescoring.corpus import CorpusBuilder
from mlmfast.rescoring.language_model import LanguageModel
from mlmfast.rescoring.lists import RescoredList
from mlmfast.rescoring.metrics import Metric
from mlmfast.rescoring.normalisation import Float64Array
from mlmfast.rescoring.optimisation import metric_of
from mlmfast.rescoring.weights import Weights
from mlmfast.types import Int64Array, JsonRecord

NO_STATISTICS: Int64Array = np.zeros((0, 0), dtype=np.int64)


class RescoredLists:
    """Keeps rescored lists for a report."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._builder = CorpusBuilder(metric)
        self._chosen: list[ChosenList] = []

    def add(self, rescored: RescoredList, features: Float64Array) -> None:
        """features float64[H, F], those of the weights' terms, or with F = 0 if not all are known.

        Raises InputError for references that the metric does not take.
        """
        self._builder.add(rescored.nbest, features)
        after = rescored.order[0] if rescored.order else 0
        self._chosen.append(ChosenList(lean(rescored.nbest), after, rescored.order))

    def report(
        self,
        weights: Weights,
        models: Sequence[LanguageModel],
        *,
        num_resamples: int = 1000,
        seed: int = 0,
        speaker: str | None = None,
        title: str,
        made_with: JsonRecord,
    ) -> Report:
        """speaker: as for `blocks_of`. What cannot be judged is left out, and the notes say why."""
        metric = self._metric
        judged = [found for found in self._chosen if found.nbest.references]
        notes = without_reference(len(self._chosen) - len(judged))
        judgements: tuple[Judgement, ...] = ()
        curves: tuple[WeightCurve, ...] = ()
        before, after = NO_STATISTICS, NO_STATISTICS
        if judged:
            corpus = self._builder.corpus()
            first = corpus.first_pass()
            winners = first + np.array([found.after for found in judged])
            before, after = corpus.statistics[first], corpus.statistics[winners]
            lines = (
                Figure(FIRST_PASS, metric_of(corpus, metric, first)),
                Figure("rescored", metric_of(corpus, metric, winners)),
                Figure(oracle_name(metric.oracle_is_exact), metric_of(corpus, metric, corpus.oracle(metric))),
            )
            if math.isnan(lines[0].value):
                notes.append("The references hold no text to compare with.")
            else:
                comparison: Comparison | None = None
                try:
                    blocks = blocks_of(corpus.ids, speaker)
                    comparison = compare(
                        metric, before, after, blocks, num_resamples=num_resamples, seed=seed
                    )
                except (InputError, SettingsError) as error:
                    notes.append(f"The gain has no interval: {error}.")
                judgements = (Judgement(metric.name, lines, "gain over the first pass", comparison),)
                notes.append("If the weights were chosen by these lists, the gain flatters.")
                curves = weight_curves(corpus, metric, weights, lines)
                if not corpus.features.shape[1]:
                    notes.append("Only the winners have all scores (--lazy): there is no curve of weights.")
        choices = choices_of(self._chosen, before, after)
        utterances = utterances_of(choices, metric, before=FIRST_PASS, after="rescored")
        return Report(
            title,
            judgements,
            weight_rows(weights),
            curves,
            utterances,
            heat_maps_of(utterances, self._chosen, models),
            made_with,
            tuple(notes),
        )
