"""Distilled models on the command line: `score --masking student`, `rescore --cascade`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import BERT, DATA, MODELS, lines, read_meta
from student_models import make_student

TEXTS = ("the people of the nation", "", "union and liberty")
SPEECH = DATA / "nbest" / "speech.json"


@pytest.fixture(scope="module", params=["token", "cls"])
def student(request, tmp_path_factory) -> Path:
    return make_student(tmp_path_factory.mktemp(request.param) / "student", head=request.param)


def head_of(student: Path) -> str:
    return student.parent.name.rstrip("0123456789")


@pytest.mark.parametrize("masking", [(), ("--masking", "student")])
def test_records_and_meta_name_the_masking_and_the_head(mlmfast_command, student, masking, tmp_path):
    out = tmp_path / "scores.jsonl"
    run = mlmfast_command.score(*masking, "--output", out, stdin=lines(*TEXTS), model=student)
    assert run.status == 0, run.err
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(r["masking"], r["student_head"]) for r in records] == [("student", head_of(student))] * 3
    assert [r["score"] is None for r in records] == [False, True, False]
    assert all("pll" not in record for record in records)
    meta = read_meta(out)
    assert meta["settings"]["masking"] == "student"
    assert meta["settings"]["student_head"] == head_of(student)
    assert meta["settings"]["scored"].startswith(
        "all tokens" if head_of(student) == "token" else "the text as a whole"
    )


@pytest.mark.parametrize("per", ["token", "word"])
def test_tokens_and_words(mlmfast_command, student, per):
    run = mlmfast_command.score("--per", per, stdin=lines(*TEXTS), model=student)
    if head_of(student) == "cls":
        assert run.status == 2
        assert f"--per {per}: a student with head cls has a score for the whole text alone" in run.err
        return
    for record in run.records:
        values = [part["log_prob"] for part in record[f"{per}s"]]
        assert record["score"] == pytest.approx(sum(values), abs=1e-4) if values else record["score"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--masking", "original"), "is a student model"),
        (("--per", "token", "--rank"), "a student"),
        (("--score-eos",), "score_eos"),
    ],
)
def test_options_that_do_not_fit(mlmfast_command, student, options, message):
    run = mlmfast_command.score(*options, stdin=lines(*TEXTS), model=student)
    assert (run.status, run.out) == (2, b"")
    assert message in run.err


def test_finetune_refuses_a_student(mlmfast_command, student, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("the people\n")
    run = mlmfast_command.run("finetune", texts, "--model", student, "--output", tmp_path / "tuned")
    assert run.status == 2
    assert "is a student model; finetune adapts masked ones" in run.err


def rescore(mlmfast_command, *args, model=BERT):
    chosen = () if model is None else ("--model", model)
    return mlmfast_command.run("rescore", SPEECH, "--workers", 1, *chosen, *args)


def test_a_cascade(mlmfast_command, student, tmp_path):
    out = tmp_path / "rescored.json"
    run = rescore(
        mlmfast_command, "--cascade", 2, "--cascade-model", student, "--lm-weight", 0.5, "--output", out
    )
    assert run.status == 0, run.err
    full = rescore(mlmfast_command, "--lm-weight", 0.5)
    exact = {
        (id, hypothesis["text"]): hypothesis["mlm"]
        for id, hypotheses in json.loads(full.out).items()
        for name, hypothesis in hypotheses.items()
        if name.startswith("hyp_")
    }
    num_exact = num_hypotheses = 0
    for id, value in json.loads(out.read_text()).items():
        hypotheses = [value[f"hyp_{n}"] for n in range(1, sum(n.startswith("hyp_") for n in value) + 1)]
        scored = [h for h in hypotheses if h["mlm"] is not None]
        assert scored == hypotheses[:2]
        assert [h["mlm"] for h in scored] == [pytest.approx(exact[id, h["text"]], abs=1e-4) for h in scored]
        assert [h["score"] is None for h in hypotheses] == [h["mlm"] is None for h in hypotheses]
        assert all(h["mlm_student"] is not None for h in hypotheses)
        num_exact += len(scored)
        num_hypotheses += len(hypotheses)
    meta = read_meta(out)
    assert meta["settings"]["cascade"]["best"] == 2
    assert list(meta["settings"]["cascade"]["models"]) == ["mlm_student"]
    counted = meta["summary"]["cascade"]
    assert (counted["num_exact"], counted["num_hypotheses"]) == (num_exact, num_hypotheses)
    assert f"{num_exact:,} of {num_hypotheses:,} hypotheses with exact scores" in run.err


def test_a_report_of_a_cascade(mlmfast_command, student, tmp_path):
    page = tmp_path / "report.html"
    run = rescore(
        mlmfast_command, "--cascade", 1, "--cascade-model", student, "--lm-weight", 0.5, "--report", page
    )
    assert run.status == 0, run.err
    assert "mlm_student" in page.read_text()


@pytest.mark.parametrize(
    ("options", "model", "message"),
    [
        (("--cascade", 2, "--lazy"), BERT, "--lazy and --cascade both choose"),
        (("--cascade-model", "x"), BERT, "--cascade-model is for --cascade K"),
        (("--cascade", 2), BERT, "has no student that is known here; name one by --cascade-model"),
        (("--cascade", 2), "none", "--model is none"),
        (("--cascade", 2, "--cascade-model", MODELS / "roberta"), BERT, "is a masked model"),
    ],
)
def test_cascades_that_do_not_fit(mlmfast_command, options, model, message):
    weight = () if model == "none" else ("--lm-weight", 0.5)
    run = rescore(mlmfast_command, *options, *weight, model=model)
    assert (run.status, run.out) == (2, b"")
    assert message in " ".join(run.err.split())
