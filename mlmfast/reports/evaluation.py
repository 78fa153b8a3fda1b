"""The report of `mlmfast eval`."""

from __future__ import annotations

from collections.abc import Sequence

from mlmfast.reports.chosen_lists import oracle_name, without_reference
from mlmfast.reports.contents import Figure, Judgement, Report
from mlmfast.reports.utterances import Choice, utterances_of
from mlmfast.rescoring.evaluation import Evaluation, ReferencedLists, in_order_of
from mlmfast.rescoring.metrics import Metric
from mlmfast.types import JsonRecord


def evaluation_report(
    evaluations: Sequence[Evaluation],
    metric: Metric,
    lists: ReferencedLists,
    against: ReferencedLists | None,
    *,
    title: str,
    made_with: JsonRecord,
) -> Report:
    """metric: of the first evaluation, by which utterances are judged."""
    judgements = tuple(
        Judgement(
            found.metric,
            (
                *([] if found.comparison is None else [Figure("other system", found.comparison.value_a)]),
                Figure("first hypotheses", found.best, found.interval),
                Figure(oracle_name(found.oracle_is_exact), found.oracle),
            ),
            "gain over the other system",
            found.comparison,
        )
        for found in evaluations
    )
    corpus = lists.corpora[metric.name]
    statistics = corpus.statistics[corpus.first_pass()]
    if against is None:
        choices = [
            Choice(id, reference, None, text, None, row)
            for id, reference, text, row in zip(
                corpus.ids, lists.references, lists.best, statistics, strict=True
            )
        ]
        names = {"before": "", "after": "first hypothesis"}
    else:
        other = against.corpora[metric.name]
        texts = dict(zip(other.ids, against.best, strict=True))
        other = in_order_of(corpus, other)
        rows = other.statistics[other.first_pass()]
        choices = [
            Choice(id, reference, texts[id], text, before, after)
            for id, reference, text, before, after in zip(
                corpus.ids, lists.references, lists.best, rows, statistics, strict=True
            )
        ]
        names = {"before": "other system", "after": "this system"}
    return Report(
        title,
        judgements,
        (),
        (),
        utterances_of(choices, metric, **names),
        (),
        made_with,
        tuple(without_reference(corpus.num_without_reference)),
    )
