"""What a model makes of each token of some hypotheses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mlmfast.reports.contents import Cell, HeatMap, HeatRow, ModelView, Utterance
from mlmfast.rescoring.language_model import LanguageModel
from mlmfast.rescoring.lists import NBestList
from mlmfast.results import TextScore

MAX_LISTS = 20
MAX_HYPOTHESES = 10


@dataclass(frozen=True)
class ShownList:
    """A list whose tokens are shown. rows: the places of its hypotheses with what each was chosen as."""

    nbest: NBestList
    utterance: Utterance
    rows: Mapping[int, tuple[str, ...]]


def shown_list(
    nbest: NBestList, utterance: Utterance, roles: Iterable[tuple[int, str]], order: Iterable[int]
) -> ShownList:
    """The hypotheses that have a role, then others in `order`, 10 in all."""
    rows: dict[int, tuple[str, ...]] = {}
    for place, role in roles:
        rows[place] = (*rows.get(place, ()), role)
    for place in order:
        if len(rows) == MAX_HYPOTHESES:
            break
        rows.setdefault(place, ())
    return ShownList(nbest, utterance, rows)


def heat_maps(models: Sequence[LanguageModel], lists: Sequence[ShownList]) -> tuple[HeatMap, ...]:
    """The tokens' log-probabilities in every shown hypothesis and in the first reference, by every model."""
    texts = [shown_texts(shown) for shown in lists]
    views = [views_of(model, texts) for model in models]
    return tuple(
        HeatMap(
            shown.utterance.place,
            shown.nbest.id,
            shown.utterance.verdict,
            len(shown.nbest.hypotheses),
            tuple(heat_rows(shown, [next(view) for view in views])),
        )
        for shown in lists
    )


def shown_texts(shown: ShownList) -> list[str]:
    return [shown.nbest.hypotheses[place].text for place in shown.rows] + [*shown.nbest.references[:1]]


def views_of(model: LanguageModel, groups: Sequence[Sequence[str]]) -> Iterator[list[ModelView]]:
    """Every text of every group as the model sees it, prepared for it."""
    prepared = [[model.preparation(text) for text in texts] for texts in groups]
    for results in model.scorer.score_groups(prepared, on_error="skip", **model.options()):
        yield [ModelView(model.name, result.score, cells(result), result.error) for result in results]


def heat_rows(shown: ShownList, views: Sequence[Sequence[ModelView]]) -> Iterator[HeatRow]:
    """views: by model, then by text."""
    best = shown.nbest.hypotheses[0].features["first_pass"]
    by_text = list(zip(*views, strict=True))
    for (place, roles), seen in zip(shown.rows.items(), by_text, strict=False):
        hypothesis = shown.nbest.hypotheses[place]
        above = hypothesis.features["first_pass"] - best
        yield HeatRow(hypothesis.number, roles, None if math.isnan(above) else above, seen)
    if shown.nbest.references:
        yield HeatRow(0, ("reference",), None, by_text[-1])


def cells(result: TextScore) -> tuple[Cell, ...]:
    """The text cut into its tokens and what lies between them.

    Tokens that share characters (bytes of one letter) are one cell, and a token without any joins the next.
    """
    text = result.text or ""
    found: list[Cell] = []
    end, pending = 0, 0.0
    for token in result.tokens:
        if token.start == token.end:
            pending += token.log_prob
        elif token.start < end and found:
            last = found.pop()
            found.append(Cell(last.text + text[end : token.end], (last.log_prob or 0.0) + token.log_prob))
            end = max(end, token.end)
        else:
            if token.start > end:
                found.append(Cell(text[end : token.start], None))
            found.append(Cell(text[token.start : token.end], pending + token.log_prob))
            end, pending = token.end, 0.0
    if end < len(text):
        found.append(Cell(text[end:], None))
    return tuple(found)
