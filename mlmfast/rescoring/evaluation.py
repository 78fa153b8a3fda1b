"""How good lists are by their references: first hypotheses, oracle, one system against another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlmfast.errors import InputError
from mlmfast.rescoring.bootstrap import Comparison, blocks_of, compare, confidence_interval
from mlmfast.rescoring.corpus import CorpusBuilder, NBestCorpus
from mlmfast.rescoring.lists import NBestList
from mlmfast.rescoring.metrics import ErrorCounts, ErrorRate, Metric, error_counts
from mlmfast.rescoring.optimisation import metric_of


@dataclass(frozen=True)
class Evaluation:
    """One metric of some lists.

    best: of the first hypothesis of each list, with its central 95% interval over resamples (None for a
    single utterance or speaker); oracle: of the best choice, a lower bound of it unless oracle_is_exact.
    error_counts: of the first hypotheses, for error rates. comparison: from another system to this one,
    None without one.
    """

    metric: str
    num_lists: int
    num_without_reference: int
    num_hypotheses: int
    best: float
    interval: tuple[float, float] | None
    oracle: float
    oracle_is_exact: bool
    error_counts: ErrorCounts | None
    comparison: Comparison | None


@dataclass(frozen=True)
class ReferencedLists:
    """The lists that have references, as corpora by metric, and the texts of their first hypotheses."""

    corpora: Mapping[str, NBestCorpus]
    best: Sequence[str]
    references: Sequence[str]


def read_corpora(lists: Iterable[NBestList], metrics: Sequence[Metric]) -> ReferencedLists:
    """The statistics of all metrics in one pass; only they and the first texts are kept.

    Raises InputError for references that a metric does not take, and where no list has one.
    """
    builders = {metric.name: CorpusBuilder(metric) for metric in metrics}
    best, references = [], []
    for nbest in lists:
        for builder in builders.values():
            builder.add(nbest, np.zeros((len(nbest.hypotheses), 0)))
        if nbest.references:
            best.append(nbest.hypotheses[0].text if nbest.hypotheses else "")
            references.append(nbest.references[0])
    corpora = {name: builder.corpus() for name, builder in builders.items()}
    return ReferencedLists(corpora, best, references)


def evaluate(
    lists: ReferencedLists,
    metric: Metric,
    *,
    against: ReferencedLists | None = None,
    num_resamples: int = 1000,
    seed: int = 0,
    speaker: str | None = None,
) -> Evaluation:
    """One of the metrics that the lists were read for. speaker: as for `blocks_of`.

    against: another system's lists, with the same ids in any order. Raises InputError where ids differ or
    nothing can be counted.
    """
    corpus = lists.corpora[metric.name]
    statistics = corpus.statistics[corpus.first_pass()]
    best = float(metric.value(statistics.sum(axis=0)))
    if np.isnan(best):
        raise InputError("the references hold no text to compare with")
    blocks = blocks_of(corpus.ids, speaker)
    interval = comparison = None
    if blocks.num_blocks > 1:
        interval = confidence_interval(metric, statistics, blocks, num_resamples=num_resamples, seed=seed)
    if against is not None:
        other = in_order_of(corpus, against.corpora[metric.name])
        before = other.statistics[other.first_pass()]
        comparison = compare(metric, before, statistics, blocks, num_resamples=num_resamples, seed=seed)
    return Evaluation(
        metric=metric.name,
        num_lists=corpus.num_lists,
        num_without_reference=corpus.num_without_reference,
        num_hypotheses=len(corpus.statistics),
        best=best,
        interval=interval,
        oracle=metric_of(corpus, metric, corpus.oracle(metric)),
        oracle_is_exact=metric.oracle_is_exact,
        error_counts=error_counts(metric, lists.best, lists.references)
        if isinstance(metric, ErrorRate)
        else None,
        comparison=comparison,
    )


def in_order_of(corpus: NBestCorpus, other: NBestCorpus) -> NBestCorpus:
    """The lists of `other` in the order of those of `corpus`. Raises InputError if they are not the same."""
    different = sorted(set(corpus.ids) ^ set(other.ids))
    if different:
        raise InputError(
            f"the two systems have different utterances: {different[0]!r} and {len(different) - 1} more are "
            "in only one; compare them on the same ones"
        )
    place = {id: index for index, id in enumerate(other.ids)}
    return other.subset(np.array([place[id] for id in corpus.ids]))
