"""What `mlmfast rescore` wrote, rescored again and judged."""

from __future__ import annotations

import json

import pytest
from command_line import BERT, DATA

SPEECH = DATA / "nbest" / "speech.json"
ONE = ("--lm-weight", "0.5")
LISTS = {
    "a": {
        "ref": "the people",
        "hyp_1": {"score": -1.0, "text": ""},
        "hyp_2": {"score": -2.0, "text": "the people"},
        "hyp_3": {"score": -200.0, "text": "the"},
    }
}


@pytest.fixture
def rescore(mlmfast_command):
    def run(*args, model=BERT):
        return mlmfast_command.run("rescore", "--workers", 1, "--quiet", "--model", model, *args)

    return run


def test_again_gives_the_same_totals(rescore, tmp_path):
    assert rescore(SPEECH, *ONE, "--output", tmp_path / "once").status == 0
    run = rescore(tmp_path / "once", *ONE, "--output", tmp_path / "twice")
    assert run.status == 0, run.err
    assert json.loads((tmp_path / "twice").read_text()) == json.loads((tmp_path / "once").read_text())
    by_feature = rescore(tmp_path / "once", "--feature", "mlm=0.5", model="none")
    assert json.loads(by_feature.out) == json.loads((tmp_path / "once").read_text())


@pytest.mark.parametrize("options", [("--lazy",), (), ("--missing", "last")])
def test_what_has_no_total_is_judged_in_its_place(rescore, mlmfast_command, tmp_path, options):
    source = tmp_path / "lists.json"
    source.write_text(json.dumps(LISTS))
    assert rescore(source, *ONE, *options, "--output", tmp_path / "out").status == 0
    first = json.loads((tmp_path / "out").read_text())["a"]["hyp_1"]["text"]
    assert first == ("the people" if "last" in options else "")
    run = mlmfast_command.run("eval", tmp_path / "out", "--json")
    assert run.status == 0, run.err
    assert json.loads(run.out)[0]["best"] == (0 if first else 100)
    again = rescore(tmp_path / "out", *ONE, *options)
    assert again.status == 0, again.err
    assert json.loads(again.out)["a"]["hyp_1"]["text"] == first


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("text", "it is something else in mlm-scoring lists"),
        ("first_pass", "it is something else in mlm-scoring lists"),
        ("lm_score", "list 'LJ001-0002' has 'lm_score' already"),
        ("a b", "'a b' cannot name a score"),
    ],
)
def test_a_name_that_would_take_the_place_of_something(rescore, name, reason):
    run = rescore(SPEECH, *ONE, "--name", name)
    assert (run.status, run.out) == (2, b"")
    assert reason in run.err
