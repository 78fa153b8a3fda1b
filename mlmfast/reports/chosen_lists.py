"""Lists with the hypotheses that were chosen from them, and what reports say of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mlmfast.reports.contents import HeatMap, Utterances
from mlmfast.reports.heat_maps import MAX_LISTS, heat_maps, shown_list
from mlmfast.reports.utterances import Choice
from mlmfast.rescoring.language_model import LanguageModel
from mlmfast.rescoring.lists import NBestList
from mlmfast.rescoring.weights import Weights
from mlmfast.types import Int64Array

FIRST_PASS = "first pass"


@dataclass(frozen=True)
class ChosenList:
    """A list and the place of its best hypothesis after rescoring (0 where it has none); order: of the others
    to show."""

    nbest: NBestList
    after: int
    order: Sequence[int]


def choices_of(chosen: Sequence[ChosenList], before: Int64Array, after: Int64Array) -> list[Choice]:
    """before, after int64[R, K]: the statistics of both choices from the R lists that have a reference."""
    rows = iter(zip(before, after, strict=True))
    choices = []
    for found in chosen:
        reference = found.nbest.references[0] if found.nbest.references else None
        first, last = text_at(found.nbest, 0), text_at(found.nbest, found.after)
        statistics = (None, None) if reference is None else next(rows)
        choices.append(Choice(found.nbest.id, reference, first, last, *statistics))
    return choices


def text_at(nbest: NBestList, place: int) -> str:
    return nbest.hypotheses[place].text if nbest.hypotheses else ""


def heat_maps_of(
    utterances: Utterances, chosen: Sequence[ChosenList], models: Sequence[LanguageModel]
) -> tuple[HeatMap, ...]:
    """Those of the lists that change most; none without a model."""
    if not models:
        return ()
    with_text = [item for item in utterances.shown if chosen[item.place].nbest.hypotheses][:MAX_LISTS]
    return heat_maps(
        models,
        [
            shown_list(
                chosen[item.place].nbest,
                item,
                ((chosen[item.place].after, "new best"), (0, "first pass's best")),
                chosen[item.place].order,
            )
            for item in with_text
        ],
    )


def weight_rows(weights: Weights) -> tuple[tuple[str, str, str], ...]:
    return tuple(
        (
            term.name,
            f"{term.weight:.6g}",
            "" if term.normalisation.kind == "none" else f"normalised: {term.normalisation}",
        )
        for term in weights.terms
    )


def without_reference(number: int) -> list[str]:
    return [f"{number:,} lists have no reference and are not in the figures."] if number else []


def oracle_name(exact: bool) -> str:
    return "oracle" if exact else "oracle, at least"


def lean(nbest: NBestList) -> NBestList:
    """The list without what its writer needs."""
    hypotheses = tuple(replace(hypothesis, source=None) for hypothesis in nbest.hypotheses)
    return replace(nbest, hypotheses=hypotheses, source=None)
