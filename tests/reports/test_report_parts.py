"""The parts of a report: differences, curves, charts, tokens."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as Xml

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlmfast.reports.charts import MAX_STEPS, curve_svg, interval_svg, ticks
from mlmfast.reports.contents import Cell, Figure, Report
from mlmfast.reports.curves import shown_range, weight_curves
from mlmfast.reports.differences import Piece, differences
from mlmfast.reports.heat_maps import cells, heat_maps, shown_list
from mlmfast.reports.utterances import Choice, utterances_of
from mlmfast.rescoring import LanguageModel, NBestList
from mlmfast.rescoring.bootstrap import Comparison
from mlmfast.rescoring.line_search import Profile
from mlmfast.rescoring.metrics import metric_named
from mlmfast.rescoring.optimisation import metric_of
from mlmfast.rescoring.tuned_lists import TunedLists
from mlmfast.results import TextScore, TokenColumns

WORDS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=6).map(" ".join)


@given(WORDS, WORDS)
def test_pieces_give_both_texts_and_the_fewest_errors(reference: str, text: str) -> None:
    pieces = differences(reference, text)
    found = [piece.text for piece in pieces if piece.kind != "missing"]
    expected = [
        piece.expected if piece.kind == "wrong" else piece.text for piece in pieces if piece.kind != "extra"
    ]
    assert " ".join(found).split() == text.split()
    assert " ".join(expected).split() == reference.split()
    errors = sum(len(piece.text.split()) for piece in pieces if piece.kind != "same")
    assert errors == metric_named("wer").statistics([text], [reference])[0, 0]


def test_differences_by_characters() -> None:
    assert differences("abc d", "abd", by_characters=True)[-1] == Piece("same", "d")
    assert differences("", "") == ()


def test_the_curve_is_the_metric_at_every_weight(tuned: TunedLists) -> None:
    (curve,) = weight_curves(tuned.corpus, tuned.metric, tuned.weights, ())
    assert curve.weight == tuned.weights.values[1]
    assert curve.value == pytest.approx(tuned.report.runs[tuned.report.best_run].in_sample)
    contenders = tuned.corpus.contenders(tuned.weights.missing)
    for weight in np.random.default_rng(0).uniform(curve.low, curve.high, 50):
        at = curve.profile.values[np.searchsorted(curve.profile.edges, weight)]
        weights = np.array([1.0, weight])
        assert at == pytest.approx(metric_of(contenders, tuned.metric, contenders.winners(weights)))


def profile_of(*edges: float) -> Profile:
    return Profile(np.array(edges), np.arange(len(edges) + 1.0))


def test_the_shown_weights_hold_the_chosen_one() -> None:
    assert shown_range(profile_of(), 0.0) == (0.0, 1.0)
    assert shown_range(profile_of(), 2.0) == (0.0, 5.0)
    assert shown_range(profile_of(1.0, 1e9), 2.0) == (0.0, 12.0)
    assert shown_range(profile_of(-3.0, 1.0), -1.0) == (-3.0, 0.0)
    low, high = shown_range(profile_of(1.0, 2.0, 3.0, 4.0, 100.0), 0.0)
    assert (low, 4.0 <= high < 100.0) == (0.0, True)


def path_points(svg: str) -> list[float]:
    path = next(e for e in Xml.fromstring(svg).iter("path") if e.get("class") == "curve")
    return [float(part) for part in path.get("d", "").replace("V", "H").split("H")[1:]]


def test_a_drawn_curve(tuned_report: Report) -> None:
    (curve,) = tuned_report.curves
    drawn = Xml.fromstring(curve_svg(curve))
    kinds = [e.get("class") for e in drawn.iter()]
    assert [f"line line-{n}" for n in range(3)] == [
        kind for kind in kinds if kind and kind.startswith("line ")
    ]
    assert kinds.count("fold") == sum(curve.low <= weight <= curve.high for weight in curve.fold_weights) > 0
    assert kinds.count("dot") == 1
    points = path_points(curve_svg(curve))
    corners = np.count_nonzero((curve.profile.edges > curve.low) & (curve.profile.edges <= curve.high))
    assert len(points) == 2 * corners + 1


def test_a_curve_of_many_corners_is_thinned(tuned_report: Report) -> None:
    (curve,) = tuned_report.curves
    edges = np.sort(np.random.default_rng(0).uniform(0, 3, 50_000))
    many = replace(curve, profile=Profile(edges, np.cumsum(np.ones(50_001))), low=0.0, high=2.0, weight=1.0)
    points = path_points(curve_svg(many))
    assert MAX_STEPS < len(points) <= 2 * MAX_STEPS + 1
    flat = replace(curve, profile=Profile(np.zeros(0), np.ones(1)), lines=(Figure("x", 1.0),), value=1.0)
    assert len(path_points(curve_svg(flat))) == 1


@pytest.mark.parametrize(("gain", "interval"), [(1.0, (-1.0, 3.0)), (-2.0, (-3.0, -1.0)), (0.0, (0.0, 0.0))])
def test_an_interval_and_where_no_gain_is(gain: float, interval: tuple[float, float]) -> None:
    found = Comparison(30.0, 30.0 - gain, gain, interval, 0.5, 0.5, 100, 10, "utterance")
    marks = {e.get("class"): e for e in Xml.fromstring(interval_svg(found)).iter()}
    dot = float(marks["dot"].get("cx", ""))
    zero, left, right = (
        float(marks[kind].get(end, ""))
        for kind, end in (("zero", "x1"), ("whisker", "x1"), ("whisker", "x2"))
    )
    assert left <= dot <= right
    assert (dot > zero) == (gain > 0)
    assert all(0 <= x <= 440 for x in (dot, zero, left, right))


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_few_and_within(low: float, width: float) -> None:
    high = low + width
    if high - low < 1e-9 * abs(low):
        return
    found = list(ticks(low, high))
    assert 3 <= len(found) <= 12
    assert all(low - 1e-9 * abs(low) - 1e-12 <= tick <= high + 1e-9 * abs(high) + 1e-12 for tick in found)


def columns_of(spans: list[tuple[int, int]], log_probs: list[float]) -> TokenColumns:
    count = len(spans)
    return TokenColumns(
        np.zeros(count, np.int32),
        np.array(log_probs, np.float32),
        np.array(spans, np.int32).reshape(count, 2),
        ["x"],
    )


@pytest.mark.parametrize(
    ("text", "spans", "log_probs", "expected"),
    [
        (
            "ab c.",
            [(0, 1), (1, 2), (3, 4)],
            [-1, -2, -4],
            [("a", -1), ("b", -2), (" ", None), ("c", -4), (".", None)],
        ),
        ("é!", [(0, 1), (0, 1), (1, 2)], [-1, -2, -4], [("é", -3), ("!", -4)]),
        ("a é", [(0, 1), (2, 2), (2, 3)], [-1, -2, -4], [("a", -1), (" ", None), ("é", -6)]),
        ("", [], [], []),
    ],
)
def test_cells_are_the_text(text, spans, log_probs, expected) -> None:
    result = TextScore(text, "original", sum(log_probs), columns=columns_of(spans, log_probs))
    found = cells(result)
    assert found == tuple(Cell(part, value) for part, value in expected)
    assert "".join(cell.text for cell in found) == text


def test_heat_maps_of_real_lists(tuned_report: Report, model: LanguageModel, lists: list[NBestList]) -> None:
    """Every cell's value is the scorer's, and the rows are those that were chosen."""
    texts = {nbest.id: nbest for nbest in lists}
    for shown in tuned_report.heat_maps[:5]:
        nbest = texts[shown.id]
        assert {"new best", "first pass's best"} <= {role for row in shown.rows for role in row.roles}
        for row in shown.rows:
            text = nbest.references[0] if row.number == 0 else nbest.hypotheses[row.number - 1].text
            (view,) = row.views
            assert "".join(cell.text for cell in view.cells) == model.preparation(text)
            (scored,) = model.scorer.score([model.preparation(text)], overlong="window")
            assert view.score == scored.score
            assert sum(cell.log_prob or 0 for cell in view.cells) == pytest.approx(scored.score, abs=1e-3)
        assert shown.rows[-1].roles == ("reference",)


def test_a_hypothesis_without_a_score_in_a_heat_map(model: LanguageModel, lists: list[NBestList]) -> None:
    hypotheses = tuple(
        replace(h, text=text) for h, text in zip(lists[0].hypotheses, ("", "the " * 200), strict=False)
    )
    nbest = replace(lists[0], hypotheses=hypotheses)
    choice = Choice(nbest.id, None, "", "x")
    (item,) = utterances_of([choice], metric_named("wer"), before="a", after="b").shown
    (found,) = heat_maps([replace(model, overlong="error")], [shown_list(nbest, item, ((1, "new"),), (0, 1))])
    (long,), (empty,) = (row.views for row in found.rows[:2])
    assert (empty.score, empty.error, empty.cells) == (None, None, ())
    assert "tokens, but the model takes" in (long.error or "")


@pytest.mark.parametrize(
    ("metric", "before", "after", "verdict"),
    [
        ("wer", "x b", "a b", "better"),
        ("wer", "a b", "x b", "worse"),
        ("wer", "x b", "y b", "equal"),
        ("wer", "x  b", "x b", "same"),
        ("bleu", "x b c d", "a b c d", "better"),
        ("chrf", "a b", "a x", "worse"),
        ("cer", None, "a b", "right"),
        ("wer", None, "a", "wrong"),
    ],
)
def test_verdicts(metric: str, before: str | None, after: str, verdict: str) -> None:
    judge = metric_named(metric)
    reference = "a b c d" if metric == "bleu" else "a b"
    rows = judge.statistics([before or "", after], [reference])
    choice = Choice("u", reference, before, after, rows[0] if before is not None else None, rows[1])
    found = utterances_of([choice], judge, before="", after="").shown[0]
    assert found.verdict == verdict


def test_texts_are_shown_as_they_are_compared() -> None:
    judge = metric_named("wer", recipe="lowercase")
    rows = judge.statistics(["The CAT", "the cat"], ["The cat"])
    found = utterances_of([Choice("u", "The cat", "The CAT", "the cat", *rows)], judge, before="", after="")
    assert [(i.verdict, i.reference, i.after) for i in found.shown] == [("same", "the cat", "the cat")]
