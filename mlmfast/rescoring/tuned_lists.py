"""Lists scored once and weights tuned on them: what `mlmfast tune` does and what a report shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from mlmfast.rescoring.corpus import NBestCorpus, nbest_corpus
from mlmfast.rescoring.lists import NBestList
from mlmfast.rescoring.metrics import Metric
from mlmfast.rescoring.rescorer import Rescorer
from mlmfast.rescoring.tuning import TuningReport, TuningSettings, tune
from mlmfast.rescoring.weights import Weights
from mlmfast.types import Int64Array, JsonRecord


@dataclass(frozen=True)
class TunedLists:
    """corpus: features and statistics of the lists that have references, by which any other weights can be
    judged (a sweep, the utterances that change); report: what tuning found; weights: the tuned ones, with
    the settings they were made with."""

    corpus: NBestCorpus
    metric: Metric
    report: TuningReport
    weights: Weights

    @property
    def held_out_winners(self) -> Int64Array:
        """int64[L], the hypothesis of each list under weights tuned without it, as an index into the N of the
        corpus."""
        winners = self.report.runs[self.report.best_run].winners
        return self.corpus.contender_indices(self.weights.missing)[winners]


def tune_lists(
    rescorer: Rescorer, lists: Iterable[NBestList], metric: Metric, settings: TuningSettings
) -> TunedLists:
    """Score the lists with the models, once, and tune the rescorer's weights from where they are.

    Lists without a reference are counted but not scored. Kept of a list are its features and statistics.
    Raises InputError as `Rescorer.rescore_lists`, `nbest_corpus` and `tune` do.
    """
    num_without_reference = 0

    def with_reference() -> Iterator[NBestList]:
        nonlocal num_without_reference
        for nbest in lists:
            if nbest.references:
                yield nbest
            else:
                num_without_reference += 1

    scored_lists = rescorer.score_lists(with_reference())
    corpus = nbest_corpus(((scored.nbest, rescorer.features(scored)) for scored in scored_lists), metric)
    corpus = replace(corpus, num_without_reference=num_without_reference)
    report = tune(corpus, metric, rescorer.weights, settings)
    made_with = rescorer.settings()
    made_with["environment"] |= figures(report, metric)
    return TunedLists(corpus, metric, report, replace(report.weights, made_with=made_with))


def figures(report: TuningReport, metric: Metric) -> JsonRecord:
    """What a weights file says of its tuning."""
    comparison = report.comparison
    made: dict[str, Any] = {
        "metric": metric.settings(),
        "lists": report.num_lists,
        "lists_without_reference": report.num_without_reference,
        "folds": report.num_folds,
        "first_pass": report.first_pass,
        "tuned_in_sample": report.runs[report.best_run].in_sample,
        "tuned_cross_fitted": report.cross_fitted,
        "cross_fitted_of_runs": [run.cross_fitted for run in report.runs],
        "oracle": report.oracle,
        "gain": comparison.gain,
        "gain_interval": list(comparison.interval),
        "p_value": comparison.p_value,
    }
    return {"tuning": made}
