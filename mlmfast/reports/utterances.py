"""What became of each utterance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mlmfast.reports.contents import Utterance, Utterances, Verdict
from mlmfast.rescoring.metrics import ErrorRate, Metric
from mlmfast.rescoring.recipes import recipe_named
from mlmfast.types import Int64Array

MAX_UTTERANCES = 500
VERDICTS: tuple[Verdict, ...] = ("better", "worse", "equal", "changed", "same", "wrong", "right")
UNREMARKABLE = ("same", "right")
PERFECT = 100.0
UNITS = {"wer": "word errors", "cer": "character errors", "bleu": "sentence BLEU", "chrf": "sentence chrF"}


@dataclass(frozen=True)
class Choice:
    """The hypotheses chosen from one list before and after; before is None where one choice is judged by
    itself. statistics_before, statistics_after int64[K]: of the metric, None without a reference."""

    id: str
    reference: str | None
    before: str | None
    after: str
    statistics_before: Int64Array | None = None
    statistics_after: Int64Array | None = None


def utterances_of(choices: Sequence[Choice], metric: Metric, *, before: str, after: str) -> Utterances:
    """All choices counted, and the first 500 of them by how much they change."""
    found = [utterance(place, choice, metric) for place, choice in enumerate(choices)]
    counts = Counter(item.verdict for item in found)
    found.sort(key=lambda item: (item.verdict in UNREMARKABLE, -abs(item.change)))
    return Utterances(
        shown=tuple(found[:MAX_UTTERANCES]),
        counts={verdict: counts[verdict] for verdict in VERDICTS if counts[verdict]},
        before=before,
        after=after,
        unit=UNITS[metric.name],
        by_characters=isinstance(metric, ErrorRate) and metric.unit == "character",
    )


def utterance(place: int, choice: Choice, metric: Metric) -> Utterance:
    """The texts as the metric's recipe makes them."""
    recipe = recipe_named(str(metric.settings()["recipe"]))
    reference = None if choice.reference is None else recipe(choice.reference)
    before = None if choice.before is None else recipe(choice.before)
    after = recipe(choice.after)
    value_before, goodness_before = sentence_value(metric, choice.statistics_before)
    value_after, goodness_after = sentence_value(metric, choice.statistics_after)
    verdict: Verdict
    if choice.before is None:
        change = goodness_after - (PERFECT if metric.larger_is_better else 0.0)
        verdict = "right" if after == reference else "wrong"
    else:
        change = goodness_after - goodness_before
        verdict = "same" if before == after else verdict_of(change, judged=reference is not None)
    return Utterance(place, choice.id, verdict, reference, before, after, value_before, value_after, change)


def sentence_value(metric: Metric, statistics: Int64Array | None) -> tuple[float | None, float]:
    """The value to show, None without statistics, and the same where larger is better."""
    if statistics is None:
        return None, 0.0
    goodness = float(metric.sentence_value(statistics[None])[0])
    return (goodness if metric.larger_is_better else abs(goodness)), goodness


def verdict_of(change: float, *, judged: bool) -> Verdict:
    if not judged:
        return "changed"
    return "better" if change > 0 else "worse" if change < 0 else "equal"
