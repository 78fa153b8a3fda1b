"""`mlmfast tune` and what `rescore` makes of its weights."""

from __future__ import annotations

import json
import re

import pytest
from command_line import BERT, DATA

SPEECH = DATA / "nbest" / "sample_speech.json"
LONG = ("--overlong", "window")
TUNE = (
    "tune",
    "--workers",
    1,
    "--model",
    BERT,
    SPEECH,
    "--metric",
    "wer",
    "--folds",
    3,
    "--append-period",
    *LONG,
)


@pytest.fixture(scope="module")
def tuned(mlmfast_command, tmp_path_factory):
    """The run and the weights file it wrote."""
    output = tmp_path_factory.mktemp("tuned") / "weights.json"
    run = mlmfast_command.run(*TUNE, "--output", output)
    assert run.status == 0, run.err
    return run, output


def test_what_is_reported(tuned):
    run, output = tuned
    figures = dict(re.findall(r"^  (\S.*?)  +(-?[\d.]+)$", run.out.decode(), re.MULTILINE))
    values = {name: float(value) for name, value in figures.items()}
    assert values["oracle"] <= values["tuned, in sample"] <= values["first pass"]
    assert values["oracle"] <= values["tuned, cross-fitted"]
    assert re.search(
        r"^3 runs, 3 folds: cross-fitted mean [\d.]+, standard deviation [\d.]+$",
        run.out.decode(),
        re.MULTILINE,
    )
    assert re.search(r"against the first pass: [-+][\d.]+ \[.*\], p = ", run.out.decode())
    weights = json.loads(output.read_text())
    assert [(t["kind"], t["name"]) for t in weights["terms"]] == [("feature", "first_pass"), ("lm", "mlm")]
    assert values["mlm"] == pytest.approx(weights["terms"][1]["weight"], rel=1e-5)
    made = weights["made_with"]["environment"]["tuning"]
    assert made["first_pass"] == pytest.approx(values["first pass"], abs=0.005)
    assert made["metric"] == {"name": "wer", "recipe": "none"}
    assert "weights in " in run.err


def test_the_same_numbers_again(tuned, mlmfast_command, tmp_path):
    _, output = tuned
    assert mlmfast_command.run(*TUNE, "--output", tmp_path / "w.json", "--quiet").err == ""
    assert (tmp_path / "w.json").read_text() == output.read_text()


def test_rescore_with_tuned_weights(tuned, mlmfast_command, tmp_path):
    """Its error rate on the tuning lists is the one that tuning reported."""
    run, output = tuned
    rescored = tmp_path / "rescored.json"
    options = ("--workers", 1, "--model", BERT, *LONG, "--weights", output, "--append-period")
    again = mlmfast_command.run("rescore", SPEECH, *options, "--output", rescored)
    assert again.status == 0, again.err
    judged = mlmfast_command.run("eval", rescored, "--json")
    (found,) = json.loads(judged.out)
    in_sample = float(re.search(r"tuned, in sample +([\d.]+)", run.out.decode())[1])
    assert found["best"] == pytest.approx(in_sample, abs=0.005)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (("--model", BERT, *LONG), r"models\.mlm\.preparation\.append_period: true, now false"),
        (("--model", BERT, "--append-period", "--masking", "none", *LONG), r"models\.mlm\.masking"),
        (("--model", BERT.with_name("albert"), "--append-period", *LONG), r"models\.mlm\.weights_sha256"),
    ],
)
def test_weights_tuned_with_other_settings_are_refused(tuned, mlmfast_command, options, name):
    run = mlmfast_command.run("rescore", SPEECH, "--workers", 1, "--weights", tuned[1], *options)
    assert (run.status, run.out) == (2, b"")
    assert re.search(rf"tuned with other settings \({name}", run.err)


def test_another_precision_is_a_warning(tuned, mlmfast_command):
    options = ("--model", BERT, "--append-period", "--precision", "bfloat16", *LONG)
    run = mlmfast_command.run("rescore", SPEECH, "--workers", 1, "--weights", tuned[1], *options)
    assert run.status == 0
    assert re.search(r'was tuned with another mlm\.precision: "(float32|bf16x3)", now "bfloat16"', run.err)


def test_other_scores_and_a_word_bonus_are_tuned_too(mlmfast_command, tmp_path):
    options = ("--feature", "lm_score", "--word-bonus", "--normalize", "tokens", "--runs", 1, "--restarts", 1)
    run = mlmfast_command.run(*TUNE, *options, "--output", tmp_path / "w.json")
    assert run.status == 0, run.err
    terms = json.loads((tmp_path / "w.json").read_text())["terms"]
    assert [term["name"] for term in terms] == ["first_pass", "mlm", "lm_score", "words"]
    assert [term["normalisation"] for term in terms] == ["none", "tokens", "none", "none"]


def test_a_file_of_references_and_lists_without_one(mlmfast_command, tmp_path):
    references = tmp_path / "ref"
    lists = json.loads(SPEECH.read_text())
    some = [id for id, value in lists.items() if "ref" in value][:5]
    references.write_text("".join(f"{id} {lists[id].pop('ref')}\n" for id in some))
    for value in lists.values():
        value.pop("ref", None)
    source = tmp_path / "lists.json"
    source.write_text(json.dumps(lists))
    arguments = ("--workers", 1, "--model", BERT, *LONG, "--metric", "cer", "--folds", 2)
    arguments += ("--output", tmp_path / "w.json")
    run = mlmfast_command.run("tune", source, *arguments, "--references", references)
    assert run.status == 0, run.err
    assert run.out.decode().startswith(f"cer of 5 lists ({len(lists) - 5} more have no reference)\n")
    without = mlmfast_command.run("tune", source, *arguments)
    assert without.status == 1
    assert "has a reference; give --references FILE" in without.err


def test_options_that_do_not_fit(mlmfast_command, tmp_path):
    output = ("--output", tmp_path / "w.json")
    run = mlmfast_command.run("tune", SPEECH, "--metric", "ter", *output)
    assert run.status == 2
    assert "unknown metric 'ter'; expected one of wer, cer, bleu, chrf" in run.err
    run = mlmfast_command.run("tune", SPEECH, "--metric", "wer", "--model", "none", *output)
    assert run.status == 2
    assert "nothing to tune but the first pass" in run.err
    assert not (tmp_path / "w.json").exists()
