"""The winner of every list from as few rows as it takes, the rows of many lists in shared batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from mlmfast.errors import InputError, SettingsError
from mlmfast.rescoring.features import LanguageModelScores
from mlmfast.rescoring.language_model import LanguageModel
from mlmfast.rescoring.lazy_search import LazySearch
from mlmfast.rescoring.lists import NBestList, RescoredList
from mlmfast.rescoring.rescorer import Rescorer, ScoredList, numbers
from mlmfast.rescoring.token_costs import costs_of
from mlmfast.scheduling.csr import offsets_of, ranges
from mlmfast.scorer import RowCounts
from mlmfast.types import BoolArray, Float32Array, Int64Array
from mlmfast.windows import Window

WINDOW_TEXTS = 2048
ROWS_PER_ROUND = 4
"""Of each list: fewer spend fewer rows, more need fewer rounds."""


@dataclass
class LazyCounts(RowCounts):
    """num_rows: of all hypotheses; num_full: those that full scoring computes, identical ones once;
    num_computed: those computed here. num_fallbacks: lists that needed full scoring."""

    num_full: int = 0
    num_fallbacks: int = 0


@dataclass
class ListSearch:
    """The search of one list. places int64[T]: where its T tokens are in the window; told bool[T]."""

    scored: ScoredList
    search: LazySearch
    offsets: Int64Array
    places: Int64Array
    told: BoolArray

    def next_places(self) -> Int64Array:
        return self.places[self.search.next_rows(ROWS_PER_ROUND)]

    def tell(self, computed: BoolArray, log_probs: Float32Array) -> None:
        """computed bool[N], log_probs float32[N] of the window's tokens."""
        new = np.flatnonzero(computed[self.places] & ~self.told)
        found = log_probs[self.places[new]]
        # What is not finite is no score: the search ends in full scoring.
        self.search.tell(new, np.where(np.isfinite(found), found, np.float32(np.nan)))
        self.told[new] = True


def rescore_lazily(
    rescorer: Rescorer, lists: Iterable[NBestList], counts: LazyCounts | None = None
) -> Iterator[RescoredList]:
    """Every list with the winner of full scoring first and the others in first-pass order.

    Only the winner has a total and a score of the last model, whose rows are saved; the other models score
    in full. The winner is that of full scoring provably, as far as the engine gives a row the same result in
    any batch. Raises SettingsError without a model, or for a student as the last one, InputError as
    `Rescorer.rescore_lists` does.
    """
    if not rescorer.models:
        raise SettingsError("lazy rescoring saves rows of a language model, but there is none; name one")
    *others, model = rescorer.models
    if model.masking == "student":
        raise SettingsError(
            f"lazy rescoring bounds the score of {model.name!r} by log-probabilities, but a student's values "
            "may be above 0; rescore in full"
        )
    counts = LazyCounts() if counts is None else counts
    return (
        rescored
        for group in windows_of(rescorer.score_with(others, lists))
        for rescored in winners(rescorer, model, group, counts)
    )


def windows_of(lists: Iterable[ScoredList]) -> Iterator[list[ScoredList]]:
    """Lists whose rows share batches."""
    window: list[ScoredList] = []
    num_texts = 0
    for scored in lists:
        window.append(scored)
        num_texts += max(len(scored.nbest.hypotheses), 1)
        if num_texts >= WINDOW_TEXTS:
            yield window
            window, num_texts = [], 0
    if window:
        yield window


def winners(
    rescorer: Rescorer, model: LanguageModel, lists: list[ScoredList], counts: LazyCounts
) -> Iterator[RescoredList]:
    texts = [model.preparation(h.text) for scored in lists for h in scored.nbest.hypotheses]
    window = model.scorer.prepare(texts, **model.options())
    searches: list[ListSearch | RescoredList] = []
    failure: InputError | None = None
    first = 0
    for scored in lists:
        try:
            searches.append(start(rescorer, model, scored, window, first))
        except InputError as error:  # raised below, once the lists before it are out
            failure = error
            break
        first += len(scored.nbest.hypotheses)
    counts.num_rows += window.num_rows
    counts.num_full += window.rows.num_rows
    counts.num_computed += compute(model, window, [s for s in searches if isinstance(s, ListSearch)])
    for search in searches:
        if isinstance(search, ListSearch):
            yield finish(rescorer, model, search, window.log_probs, counts)
        else:
            yield search
    if failure is not None:
        raise failure


def start(
    rescorer: Rescorer, model: LanguageModel, scored: ScoredList, window: Window, first: int
) -> ListSearch | RescoredList:
    """The search of a list whose first hypothesis is text `first` of the window; an empty list is done."""
    hypotheses = scored.nbest.hypotheses
    if not hypotheses:
        return RescoredList(scored.nbest, (), (), dict.fromkeys([*scored.scores, model.name], ()))
    places = []
    for index, hypothesis in enumerate(hypotheses):
        found = window.tokens_of(first + index)
        if isinstance(found, InputError):
            rescorer.refuse(scored.nbest, hypothesis, found.reason)
            found = np.zeros(0, dtype=np.int64)
        places.append(found)
    offsets = offsets_of(np.array([len(found) for found in places]))
    unknown = no_scores(offsets)
    features = rescorer.features(ScoredList(scored.nbest, {**scored.scores, model.name: unknown}))
    terms = rescorer.weights.terms
    column = next(i for i, term in enumerate(terms) if (term.kind, term.name) == ("lm", model.name))
    tokens = np.concatenate(places)
    search = LazySearch(
        features,
        rescorer.weights.values,
        column,
        offsets,
        terms[column].normalisation.divisors(unknown.num_tokens),
        costs_of(window.input_ids[tokens], offsets),
        missing=rescorer.weights.missing,
    )
    return ListSearch(scored, search, offsets, tokens, np.zeros(len(tokens), dtype=np.bool_))


def no_scores(offsets: Int64Array) -> LanguageModelScores:
    num_tokens = np.diff(offsets)
    return LanguageModelScores(np.full(len(num_tokens), np.nan), num_tokens)


def compute(model: LanguageModel, window: Window, searches: list[ListSearch]) -> int:
    """Runs the searches to their ends, a round of all at a time; the number of rows it took."""
    rows = window.rows
    row_of = np.zeros(len(window.input_ids), dtype=np.int64)
    row_of[rows.target_slots] = np.repeat(np.arange(rows.num_rows), np.diff(rows.target_offsets))
    computed = np.zeros(len(row_of), dtype=np.bool_)
    num_computed = 0
    while active := [search for search in searches if not search.search.done]:
        asked = np.unique(row_of[np.concatenate([search.next_places() for search in active])])
        model.scorer.compute(window, asked)
        num_computed += len(asked)
        starts = rows.target_offsets[asked]
        computed[rows.target_slots[ranges(starts, rows.target_offsets[asked + 1] - starts)]] = True
        for search in active:
            search.tell(computed, window.log_probs)
    return num_computed


def finish(
    rescorer: Rescorer, model: LanguageModel, search: ListSearch, log_probs: Float32Array, counts: LazyCounts
) -> RescoredList:
    nbest, offsets = search.scored.nbest, search.offsets
    found = log_probs[search.places]
    for token in np.flatnonzero(search.told & ~np.isfinite(found)):
        hypothesis = nbest.hypotheses[int(np.searchsorted(offsets, token, side="right")) - 1]
        rescorer.refuse(nbest, hypothesis, f"the model gave {found[token]} for a token of this text")
    result = search.search.result()
    counts.num_fallbacks += result.fallback is not None
    winner, count = result.winner, len(nbest.hypotheses)
    start, end = offsets[winner : winner + 2]
    has_score = bool(search.told[start:end].all()) and end > start and not np.isnan(result.total)
    score = float(found[start:end].sum(dtype=np.float64)) if has_score else None
    features = {name: numbers(other.scores) for name, other in search.scored.scores.items()}
    return RescoredList(
        nbest,
        tuple(result.order.tolist()),
        one_of(count, winner, None if np.isnan(result.total) else result.total),
        {**features, model.name: one_of(count, winner, score)},
    )


def one_of(count: int, index: int, value: float | None) -> tuple[float | None, ...]:
    """`value` at `index` among `count`, None elsewhere."""
    return tuple(value if place == index else None for place in range(count))
