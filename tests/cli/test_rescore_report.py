"""--report of `rescore`, `tune` and `eval`, and where it is refused."""

from __future__ import annotations

import html
import json
import re
import shutil

import pytest
from command_line import BERT, DATA

SPEECH = DATA / "nbest" / "sample_speech.json"
MODEL = ("--workers", 1, "--model", BERT, "--overlong", "window")


def figures_of(page: str) -> dict[str, float]:
    rows = re.findall(r'<tr><th scope="row">([^<]*)</th><td>([^<]*)</td><td class="quiet">', page)
    return {name: float(value.replace("\N{MINUS SIGN}", "-")) for name, value in rows}


def judged(command, *args) -> float:
    (found,) = json.loads(command.run("eval", *args, "--json").out)
    return found["best"]


def test_rescore(mlmfast_command, tmp_path):
    """The same lists come out with a report as without one, and the page has their figures."""
    page, output = tmp_path / "page.html", tmp_path / "out.json"
    run = mlmfast_command.run(
        "rescore", SPEECH, *MODEL, "--lm-weight", 2, "--report", page, "--output", output
    )
    assert run.status == 0, run.err
    assert output.read_bytes() == mlmfast_command.run("rescore", SPEECH, *MODEL, "--lm-weight", 2).out
    text = page.read_text("utf-8")
    figures = figures_of(text)
    assert figures["rescored"] == pytest.approx(judged(mlmfast_command, output), abs=0.005)
    assert figures["first pass"] == pytest.approx(judged(mlmfast_command, SPEECH), abs=0.005)
    assert figures["mlm"] == 2
    assert '<figure class="weight-curve">' in text
    assert text.count('class="heat-map"') == 20
    assert '<th scope="row">models.mlm.masking</th><td>original</td>' in text


def test_rescore_lazily_and_by_another_metric(mlmfast_command, tmp_path):
    page = tmp_path / "page.html"
    options = ("--lazy", "--metric", "cer", "--recipe", "lowercase", "--resamples", 50, "--report", page)
    run = mlmfast_command.run("rescore", SPEECH, *MODEL, "--lm-weight", 2, *options)
    assert run.status == 0, run.err
    text = page.read_text("utf-8")
    full = mlmfast_command.run("rescore", SPEECH, *MODEL, "--lm-weight", 2, "--output", tmp_path / "out.json")
    assert full.status == 0
    expected = judged(mlmfast_command, tmp_path / "out.json", "--metric", "cer", "--recipe", "lowercase")
    assert figures_of(text)["rescored"] == pytest.approx(expected, abs=0.005)
    assert '<figure class="weight-curve">' not in text
    assert "there is no curve of weights" in text
    assert "(50 resamples of" in text


def test_tune(mlmfast_command, tmp_path):
    page = tmp_path / "page.html"
    options = ("--metric", "wer", "--folds", 3, "--output", tmp_path / "w.json", "--report", page)
    run = mlmfast_command.run("tune", SPEECH, *MODEL, *options)
    assert run.status == 0, run.err
    made = json.loads((tmp_path / "w.json").read_text())["made_with"]["environment"]["tuning"]
    figures = figures_of(page.read_text("utf-8"))
    assert figures["tuned, cross-fitted"] == pytest.approx(made["tuned_cross_fitted"], abs=0.005)
    assert figures["oracle"] == pytest.approx(made["oracle"], abs=0.005)


def test_eval(mlmfast_command, tmp_path):
    lists = json.loads(SPEECH.read_text())
    for value in lists.values():
        if "ref" in value:
            value["hyp_1"]["text"] = value["ref"]
    better, page = tmp_path / "better.json", tmp_path / "page.html"
    better.write_text(json.dumps(dict(reversed(lists.items()))))
    metrics = ("--metric", "wer", "--metric", "chrf")
    run = mlmfast_command.run("eval", better, "--against", SPEECH, *metrics, "--report", page)
    assert run.status == 0, run.err
    text = html.unescape(page.read_text("utf-8"))
    assert re.findall(r"<h2>(WER|CHRF)</h2>", text) == ["WER", "CHRF"]
    shown = re.findall(r'data-verdict="(\w+)" data-place="\d+" data-id="([^"]+)" data-value="0.0"', text)
    right = [
        id
        for id, value in json.loads(SPEECH.read_text()).items()
        if value.get("ref") == value["hyp_1"]["text"]
    ]
    assert sorted(id for verdict, id in shown if verdict == "same") == sorted(right)
    assert {verdict for verdict, _ in shown} == {"better", "same"}
    alone = mlmfast_command.run("eval", SPEECH, "--report", page)
    assert alone.out == mlmfast_command.run("eval", SPEECH).out
    assert f'<option value="right">right {len(right)}</option>' in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--report", "page.json"), "expected a file whose name ends with .html"),
        (("--report", "-"), "expected a file whose name ends with .html"),
        (("--report", "nowhere/page.html"), "there is no folder nowhere"),
        (("--report", "page.html", "--output", "./page.html"), "the command reads or writes this file, too"),
        (("--report", "page.html", "--resume", "--output", "o"), "--report shows a whole run"),
        (("--report", "page.html", "--metric", "ter"), "unknown metric 'ter'"),
        (("--metric", "wer"), "are for --report; name one, or leave them out"),
        (("--recipe", "lowercase"), "are for --report; name one, or leave them out"),
    ],
)
def test_what_is_refused_before_a_model_is_loaded(mlmfast_command, tmp_path, options, reason):
    run = mlmfast_command.run("rescore", "--model", tmp_path / "no_model", SPEECH, "--lm-weight", 1, *options)
    assert (run.status, run.out) == (2, b"")
    assert reason in run.err
    assert run.err.count("\n") == 1


def test_a_page_over_the_lists_or_the_weights_is_refused(mlmfast_command, tmp_path):
    lists, weights = tmp_path / "lists.html", tmp_path / "weights.html"
    shutil.copy(SPEECH, lists)
    for command in (
        ("eval", lists, "--report", lists),
        ("eval", SPEECH, "--against", lists, "--report", lists),
        ("tune", SPEECH, "--metric", "wer", "--output", weights, "--report", weights),
    ):
        run = mlmfast_command.run(*command)
        assert run.status == 2
        assert "the command reads or writes this file, too" in run.err
    assert lists.read_bytes() == SPEECH.read_bytes()
    assert not weights.exists()
