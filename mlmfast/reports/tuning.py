"""The report of `mlmfast tune`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlmfast.reports.chosen_lists import (
    FIRST_PASS,
    ChosenList,
    choices_of,
    heat_maps_of,
    oracle_name,
    weight_rows,
    without_reference,
)
from mlmfast.reports.contents import Figure, Judgement, Report
from mlmfast.reports.curves import weight_curves
from mlmfast.reports.utterances import utterances_of
from mlmfast.rescoring.language_model import LanguageModel
from mlmfast.rescoring.lists import NBestList
from mlmfast.rescoring.tuned_lists import TunedLists
from mlmfast.types import JsonRecord


def tuning_report(
    tuned: TunedLists,
    lists: Mapping[str, NBestList],
    models: Sequence[LanguageModel],
    *,
    title: str,
    made_with: JsonRecord,
) -> Report:
    """The lists by id, those with references at least. A list's new best is the held-out one."""
    found, corpus, metric = tuned.report, tuned.corpus, tuned.metric
    winners, first = tuned.held_out_winners, corpus.first_pass()
    chosen = [
        ChosenList(lists[id], int(place), range(len(lists[id].hypotheses)))
        for id, place in zip(corpus.ids, winners - first, strict=True)
    ]
    choices = choices_of(chosen, corpus.statistics[first], corpus.statistics[winners])
    utterances = utterances_of(choices, metric, before=FIRST_PASS, after="tuned")
    run = found.runs[found.best_run]
    lines = (
        Figure(FIRST_PASS, found.first_pass),
        Figure("tuned, cross-fitted", found.cross_fitted),
        Figure(oracle_name(found.oracle_is_exact), found.oracle),
    )
    judgement = Judgement(
        metric.name,
        (*lines[:2], Figure("tuned, in sample (flatters)", run.in_sample), lines[2]),
        "gain over the first pass, cross-fitted",
        found.comparison,
    )
    notes = [
        "Gain and utterances are cross-fitted: every list is judged with weights tuned without it.",
        "The weights and their curves are of all lists together, which flatters.",
        *without_reference(corpus.num_without_reference),
    ]
    return Report(
        title,
        (judgement,),
        weight_rows(tuned.weights),
        weight_curves(corpus, metric, tuned.weights, lines, run.fold_weights),
        utterances,
        heat_maps_of(utterances, chosen, models),
        made_with,
        tuple(notes),
    )
