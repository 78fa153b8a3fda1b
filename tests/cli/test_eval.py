"""`mlmfast eval`: figures of lists and of text, by jiwer's and sacrebleu's own."""

from __future__ import annotations

import json

import jiwer
import pytest
import sacrebleu
from command_line import DATA

SPEECH = DATA / "nbest" / "sample_speech.json"
METRICS = ("--metric", "wer", "--metric", "cer", "--metric", "bleu", "--metric", "chrf")


def judged_by_others(hypotheses: list[str], references: list[str]) -> dict[str, float]:
    return {
        "wer": 100 * jiwer.wer(references, hypotheses),
        "cer": 100 * jiwer.cer(references, hypotheses),
        "bleu": sacrebleu.corpus_bleu(hypotheses, [references]).score,
        "chrf": sacrebleu.corpus_chrf(hypotheses, [references]).score,
    }


def first_hypotheses() -> tuple[list[str], list[str]]:
    lists = [value for value in json.loads(SPEECH.read_text()).values() if "ref" in value]
    return [value["hyp_1"]["text"] for value in lists], [value["ref"] for value in lists]


def test_lists(mlmfast_command):
    run = mlmfast_command.run("eval", SPEECH, *METRICS, "--json")
    assert run.status == 0, run.err
    expected = judged_by_others(*first_hypotheses())
    found = {figures["metric"]: figures for figures in json.loads(run.out)}
    assert {name: figures["best"] for name, figures in found.items()} == pytest.approx(expected)
    for figures in found.values():
        low, high = figures["interval"]
        assert low <= figures["best"] <= high
        assert figures["comparison"] is None
    assert found["wer"]["oracle"] < found["wer"]["best"]
    counts = found["wer"]["error_counts"]
    edits = counts["substitutions"] + counts["deletions"] + counts["insertions"]
    words = counts["substitutions"] + counts["deletions"] + counts["hits"]
    assert 100 * edits / words == pytest.approx(expected["wer"])


def test_a_table_for_people(mlmfast_command):
    run = mlmfast_command.run("eval", SPEECH)
    wer = judged_by_others(*first_hypotheses())["wer"]
    lines = run.out.decode().splitlines()
    assert lines[0].startswith("wer of ")
    assert lines[1].startswith(f"  first hypotheses  {wer:.2f}  [")
    assert lines[2].startswith("  oracle            ")
    assert lines[3].endswith(" right")


@pytest.mark.parametrize("style", ["text", "keyed"])
def test_text(mlmfast_command, tmp_path, style):
    hypotheses, references = first_hypotheses()
    files = {"hyp": hypotheses, "ref": references}
    for name, texts in files.items():
        keys = ("" if style == "text" else f"id{index} " for index in range(len(texts)))
        (tmp_path / name).write_text("".join(f"{key}{text}\n" for key, text in zip(keys, texts, strict=True)))
    run = mlmfast_command.run(
        "eval", tmp_path / "hyp", "--format", style, "--references", tmp_path / "ref", *METRICS, "--json"
    )
    assert run.status == 0, run.err
    found = {figures["metric"]: figures["best"] for figures in json.loads(run.out)}
    assert found == pytest.approx(judged_by_others(hypotheses, references))


def test_one_system_against_another(mlmfast_command, tmp_path):
    lists = json.loads(SPEECH.read_text())
    for value in lists.values():
        if "ref" in value:
            value["hyp_1"]["text"] = value["ref"]
    better = tmp_path / "better.json"
    better.write_text(json.dumps(dict(reversed(lists.items()))))
    run = mlmfast_command.run("eval", better, "--against", SPEECH, "--json", "--resamples", 200)
    (found,) = json.loads(run.out)
    comparison = found["comparison"]
    assert (found["best"], comparison["value_b"]) == (0.0, 0.0)
    assert comparison["gain"] == pytest.approx(judged_by_others(*first_hypotheses())["wer"])
    assert comparison["interval"][0] > 0
    assert comparison["p_value"] < 0.05
    table = mlmfast_command.run("eval", better, "--against", SPEECH).out.decode()
    assert "  the other system's  " in table
    assert "gain over the other system: +" in table
    del lists["LJ001-0002"]
    better.write_text(json.dumps(lists))
    run = mlmfast_command.run("eval", better, "--against", SPEECH)
    assert run.status == 1
    assert "the two systems have different utterances" in run.err


def test_parts_that_cannot_be_read(mlmfast_command, tmp_path):
    source, references = tmp_path / "lists.nbest", tmp_path / "ref"
    source.write_text("0 ||| We ||| F0= -1 ||| -1\n0 ||| the ||| F0= -2 ||| ?\n")
    references.write_text("We the\n")
    arguments = ("eval", source, "--references", references)
    refused = mlmfast_command.run(*arguments)
    assert refused.status == 1
    assert "error: line 2: " in refused.err
    run = mlmfast_command.run(*arguments, "--on-error", "skip")
    assert run.status == 3
    assert run.out.decode().startswith("wer of 1 lists, 1 hypotheses\n  first hypotheses  50.00")


def test_options_that_do_not_fit(mlmfast_command):
    run = mlmfast_command.run("eval", SPEECH, "--metric", "ter")
    assert run.status == 2
    assert "unknown metric 'ter'; expected one of wer, cer, bleu, chrf" in run.err
    run = mlmfast_command.run("eval", SPEECH, "--recipe", "upper")
    assert run.status == 2
    assert "unknown recipe 'upper'" in run.err
