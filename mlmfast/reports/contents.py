"""What a page shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from mlmfast.rescoring.bootstrap import Comparison
from mlmfast.rescoring.line_search import Profile
from mlmfast.rescoring.normalisation import Float64Array

Verdict = Literal["better", "worse", "equal", "changed", "same", "wrong", "right"]
"""Of two choices: better, worse, equally good, without a reference to say so, the same text. Of one: other
than its reference or not."""


@dataclass(frozen=True)
class Figure:
    """A value of a metric; interval: its central 95% over resamples, if known."""

    name: str
    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Judgement:
    """One metric of the lists. comparison: the gain, of which `gain_of` says from what to what; None where
    there is nothing to compare, or too little."""

    metric: str
    figures: tuple[Figure, ...]
    gain_of: str = ""
    comparison: Comparison | None = None


@dataclass(frozen=True)
class WeightCurve:
    """A metric for every weight of one term, the other weights as they are.

    profile: the exact curve. weight, value: where the weights stand on it. low, high: the weights to show.
    lines: other values to compare with, none of which depends on the weight. fold_weights float64[folds]:
    those of the cross-fitting, if there was one.
    """

    term: str
    metric: str
    profile: Profile
    weight: float
    value: float
    low: float
    high: float
    lines: tuple[Figure, ...]
    fold_weights: Float64Array


@dataclass(frozen=True)
class Utterance:
    """The chosen hypotheses of one list, as they were compared. place: of the list, from 0. before: None
    where one choice is judged by itself. value_before, value_after: of the sentence alone, None without a
    reference. change: how much better it became."""

    place: int
    id: str
    verdict: Verdict
    reference: str | None
    before: str | None
    after: str
    value_before: float | None = None
    value_after: float | None = None
    change: float = 0.0


@dataclass(frozen=True)
class Utterances:
    """shown: some or all, those that change most first. counts: of all, by verdict. before, after: what the
    two choices are called. unit: of a sentence's value. by_characters: whether they are compared by
    characters instead of words."""

    shown: tuple[Utterance, ...]
    counts: dict[Verdict, int]
    before: str
    after: str
    unit: str
    by_characters: bool = False

    @property
    def num_utterances(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True)
class Cell:
    """A piece of a text. log_prob: of the tokens that it is, in nats; None for what is not scored."""

    text: str
    log_prob: float | None


@dataclass(frozen=True)
class ModelView:
    """A text as one model sees it. score: the sum of its tokens; error: why there is none."""

    model: str
    score: float | None
    cells: tuple[Cell, ...]
    error: str | None = None


@dataclass(frozen=True)
class HeatRow:
    """One hypothesis, or the reference (number 0). roles: what it was chosen as. first_pass: above the first
    pass's best, None where there is none."""

    number: int
    roles: tuple[str, ...]
    first_pass: float | None
    views: tuple[ModelView, ...]


@dataclass(frozen=True)
class HeatMap:
    """Hypotheses of one list, token by token. place: of the list, from 0. num_hypotheses: of the whole
    list."""

    place: int
    id: str
    verdict: Verdict
    num_hypotheses: int
    rows: tuple[HeatRow, ...]

    @property
    def num_shown(self) -> int:
        return sum(row.number > 0 for row in self.rows)


@dataclass(frozen=True)
class Report:
    """weights: name, weight and normalisation of every term. made_with: JSON. notes: what the page leaves
    out, and why."""

    title: str
    judgements: tuple[Judgement, ...]
    weights: tuple[tuple[str, str, str], ...]
    curves: tuple[WeightCurve, ...]
    utterances: Utterances
    heat_maps: tuple[HeatMap, ...]
    made_with: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def places_of_heat_maps(self) -> frozenset[int]:
        return frozenset(map.place for map in self.heat_maps)
