"""What stands in the page, without a browser."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from report_samples import HOSTILE, hostile_report

from mlmfast.errors import MissingExtraError
from mlmfast.reports import Report, render, require_packages
from mlmfast.reports.heat_maps import MAX_HYPOTHESES, MAX_LISTS
from mlmfast.reports.page import HEAT_LEVELS, heat
from mlmfast.reports.rescored import RescoredLists
from mlmfast.reports.utterances import MAX_UTTERANCES
from mlmfast.rescoring import Hypothesis, NBestList, Rescorer, mlm_scoring
from mlmfast.rescoring.lists import RescoredList
from mlmfast.rescoring.metrics import metric_named
from mlmfast.rescoring.tuned_lists import TunedLists


class Elements(HTMLParser):
    """Tags with their attributes, and all text outside of styles and scripts."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._inside = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("style", "script"):
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def test_the_page_fetches_nothing(tuned_report: Report) -> None:
    page = render(tuned_report)
    fetching = ("src", "srcset", "action", "data", "background", "poster")
    for tag, attributes in Elements(page).tags:
        assert tag not in ("link", "iframe", "object", "embed", "img", "base")
        assert not attributes.keys() & set(fetching)
        assert attributes.get("href", "#").startswith("#")
    assert "default-src 'none'" in page
    assert not re.search(r"@import|url\(|https?://", page)


def test_every_text_is_escaped() -> None:
    elements = Elements(render(hostile_report()))
    tags = [tag for tag, _ in elements.tags]
    assert (tags.count("script"), tags.count("title"), tags.count("img")) == (1, 4, 0)
    once = " ".join(HOSTILE.split())
    # the curve's caption also has it, in capitals
    assert elements.words.count(once) >= 20
    listed = [attributes["data-list"] for tag, attributes in elements.tags if "data-list" in attributes]
    assert listed == [HOSTILE]


def test_what_makes_a_page_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"a report needs the package 'jinja2'.*mlmfast\[nbest\]"):
        require_packages()


def test_text_that_no_file_can_hold() -> None:
    page = render(replace(hostile_report(), title="a\ud800b"))
    assert "<h1>a?b</h1>" in page
    page.encode("utf-8")


def test_the_same_report_gives_the_same_page(tuned_report: Report) -> None:
    assert render(tuned_report) == render(tuned_report)


def test_figures_of_the_tuning(tuned: TunedLists, tuned_report: Report) -> None:
    words = Elements(render(tuned_report)).words
    found = tuned.report
    for value in (found.first_pass, found.cross_fitted, found.oracle, found.runs[found.best_run].in_sample):
        assert f" {value:.2f} " in words
    gain = f"{found.comparison.gain:+.2f}".replace("-", "\N{MINUS SIGN}")
    assert f"{gain} gain over the first pass, cross-fitted" in words
    assert "2 lists have no reference" in words
    assert "models.masking original" in words


def test_utterances_of_the_tuning_are_the_held_out_ones(tuned: TunedLists, tuned_report: Report) -> None:
    """Their errors add up to the cross-fitted figure."""
    shown = tuned_report.utterances.shown
    lengths = sum(len((item.reference or "").split()) for item in shown)
    before, after = (
        sum(v or 0 for v in vs) for vs in zip(*[(i.value_before, i.value_after) for i in shown], strict=True)
    )
    assert 100 * before / lengths == pytest.approx(tuned.report.first_pass)
    assert 100 * after / lengths == pytest.approx(tuned.report.cross_fitted)
    assert tuned_report.utterances.num_utterances == len(shown) == tuned.report.num_lists


def test_rescored_lists(rescored_report: Report, lists: list[NBestList]) -> None:
    utterances = rescored_report.utterances
    assert utterances.num_utterances == len(lists)
    figures = {figure.name: figure.value for figure in rescored_report.judgements[0].figures}
    assert figures["oracle"] <= min(figures["first pass"], figures["rescored"])
    (curve,) = rescored_report.curves
    assert (curve.weight, curve.value) == (0.5, pytest.approx(figures["rescored"]))
    unjudged = [item for item in utterances.shown if item.reference is None]
    assert len(unjudged) == 2
    assert {item.verdict for item in unjudged} <= {"changed", "same"}
    assert "2 lists have no reference and are not in the figures." in rescored_report.notes


def test_lists_without_any_reference(lists: list[NBestList]) -> None:
    rescorer = Rescorer([], replace(mlm_scoring({}), missing="last"))
    kept = RescoredLists(metric_named("wer"))
    for nbest in lists[:3]:
        kept.add(
            rescorer.ranked(next(rescorer.score_lists([replace(nbest, references=())]))), np.zeros((10, 1))
        )
    report = kept.report(rescorer.weights, [], title="no references", made_with={})
    assert (report.judgements, report.curves, report.heat_maps) == ((), (), ())
    assert report.utterances.counts == {"same": 3}
    assert "What the model disliked" not in render(report)


def one_list(id: str, *texts: str, reference: str | None = "a b") -> NBestList:
    hypotheses = tuple(Hypothesis(n, text, {"first_pass": -float(n)}) for n, text in enumerate(texts, 1))
    return NBestList(id, hypotheses, () if reference is None else (reference,))


def test_lists_with_nothing_in_them_and_a_single_one() -> None:
    """No bootstrap over one utterance, but the figures."""
    kept = RescoredLists(metric_named("wer"))
    kept.add(RescoredList(one_list("empty"), (), ()), np.zeros((0, 0)))
    report = kept.report(mlm_scoring({"mlm": 1.0}), [], title="one", made_with={})
    assert report.judgements[0].comparison is None
    assert "The gain has no interval: 1 utterance: a bootstrap needs at least 2." in report.notes
    assert [item.verdict for item in report.utterances.shown] == ["same"]
    assert "100.00" in Elements(render(report)).words


def test_references_without_a_word() -> None:
    kept = RescoredLists(metric_named("wer"))
    for id in ("a", "b"):
        kept.add(RescoredList(one_list(id, "x", reference=""), (0,), (-1.0,)), np.zeros((1, 1)))
    report = kept.report(mlm_scoring({}), [], title="silence", made_with={})
    assert report.judgements == ()
    assert "The references hold no text to compare with." in report.notes
    render(report)


def test_lists_keep_their_places() -> None:
    """Of lists with and without a reference."""
    kept = RescoredLists(metric_named("wer"))
    references = [None, "a b", None, "a b"]
    for number, reference in enumerate(references):
        nbest = one_list(f"u{number}", "a c", "a b", reference=reference)
        kept.add(RescoredList(nbest, (1, 0), (-2.0, -1.0)), np.zeros((2, 0)))
    report = kept.report(mlm_scoring({"mlm": 1.0}), [], title="places", made_with={})
    found = {item.place: (item.id, item.reference, item.verdict) for item in report.utterances.shown}
    verdicts = ["changed" if reference is None else "better" for reference in references]
    assert found == {n: (f"u{n}", references[n], verdicts[n]) for n in range(4)}


def test_what_is_left_out_is_said() -> None:
    kept = RescoredLists(metric_named("wer"))
    count = MAX_UTTERANCES + 30
    for number in range(count):
        nbest = one_list(f"u{number}", "a c", "a b", reference="a b")
        kept.add(RescoredList(nbest, (1, 0) if number % 2 else (0, 1), (-1.0, -2.0)), np.zeros((2, 0)))
    report = kept.report(mlm_scoring({"mlm": 1.0}), [], title="many", made_with={})
    assert report.utterances.counts == {"better": count // 2, "same": count // 2}
    assert len(report.utterances.shown) == MAX_UTTERANCES
    assert [item.verdict for item in report.utterances.shown[: count // 2]] == ["better"] * (count // 2)
    words = Elements(render(report)).words
    assert f"{MAX_UTTERANCES} of {count} are on this page" in words
    assert "there is no curve of weights." in words


def test_the_page_stays_small(tuned_report: Report) -> None:
    assert len(tuned_report.heat_maps) <= MAX_LISTS
    for shown in tuned_report.heat_maps:
        assert shown.num_shown == min(MAX_HYPOTHESES, shown.num_hypotheses)
    page = render(tuned_report)
    assert len(page) < 400_000
    assert f"The tokens of {MAX_LISTS} of {tuned_report.utterances.num_utterances} lists" in page


def test_heat_grows_as_tokens_become_unlikely() -> None:
    assert [heat(-nats) for nats in (0.0, 0.99, *HEAT_LEVELS, 50.0)] == [0, 0, 1, 2, 3, 4, 5, 6, 6]
    assert heat(float("nan")) == 6
