"""The study of scoring rules, small: what is measured, what is run and not repeated, what is printed."""

from __future__ import annotations

import gzip
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import study_scoring_rules
from study_measures import blimp_accuracy, held_out_figures, some_pairs, tail
from study_runs import FIGURES, blocks_of, read_paragraphs
from study_scoring_rules import Material, jobs, read_results, run, study
from study_tables import page, spread

from mlmfast.scorer import open_model

DATA = Path(__file__).parent / "data"
TINY = DATA / "models" / "bert"
LINES = (DATA / "text" / "inaugural.txt").read_text(encoding="utf-8").splitlines()


def material(model: Path | None) -> Material:
    files = open_model(model)
    return Material(
        blocks_of(LINES[:40], files),
        blocks_of(LINES[40:45], files),
        LINES[40:45],
        DATA / "text" / "blimp_sample.jsonl",
        DATA / "nbest" / "sample_speech.json",
    )


def test_tail_is_of_the_smallest_twentieth() -> None:
    log_probs = np.full(40, -1.0)
    log_probs[[3, 17]] = [-9.0, -13.0]
    found = tail(log_probs)
    assert found["num_tokens"] == 40
    assert found["tail_mean"] == -11
    assert found["tail_share"] == pytest.approx(22 / 60)
    assert found["pppl"] == pytest.approx(math.exp(60 / 40))
    assert -13 < found["percentile_1"] < -9
    assert tail([-2.0])["tail_mean"] == -2


def test_a_tie_is_no_right_answer() -> None:
    plls = [(-1.0, -2.0), (-2.0, -1.0), (-1.0, -1.0), (-3.0, -4.0)]
    groups = [[SimpleNamespace(pll=good), SimpleNamespace(pll=bad)] for good, bad in plls]
    scorer = SimpleNamespace(score_groups=lambda texts: groups[: len(list(texts))])
    pairs = [{"good": "a", "bad": "b"}] * 4
    assert blimp_accuracy(scorer, pairs) == {"num_pairs": 4, "blimp_accuracy": 0.5}


def test_pairs_are_the_first_of_each_paradigm() -> None:
    pairs = [{"paradigm": name, "pair": str(index)} for name in "ab" for index in range(9)]
    assert [p["paradigm"] + p["pair"] for p in some_pairs(pairs)] == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_held_out_paragraphs_are_not_trained_on(tmp_path: Path) -> None:
    (tmp_path / "README.txt").write_text("not a book " * 20)
    (tmp_path / "a.txt").write_text("\n".join(f"{i:05d}" for i in range(20)) + "\nx\n")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"20020\n20021\n"))
    found = read_paragraphs(tmp_path, shortest=5, every=2, held_out_every=5)
    assert found.held_out == ["00008", "00018"]
    assert len(found.train) == 9
    assert found.train[-1] == "20020"
    with pytest.raises(SystemExit, match="too few"):
        read_paragraphs(tmp_path, shortest=6)


def test_a_study_runs_each_arm_and_seed_once(tmp_path: Path) -> None:
    output = tmp_path / "results.jsonl"
    made = material(None)
    study("scratch", made, output, num_seeds=1, steps=2)
    counted, *records = read_results(output)
    assert counted["arm"] == "token frequencies"
    assert counted["measures"]["num_targets"] == records[0]["evaluations"][0]["num_targets"]
    assert 0 < counted["measures"]["log_loss"] < math.log(20000)
    assert [record["arm"] for record in records] == ["log", "brier", "spherical"]
    curves = [[round(e["log_loss"], 6) for e in record["evaluations"]] for record in records]
    assert all([e["step"] for e in record["evaluations"]] == [0, 2] for record in records)
    assert len({curve[0] for curve in curves}) == 1
    assert len({curve[1] for curve in curves}) == 3
    told = (tmp_path / "results.md").read_text()
    assert told.count("| 2 |") == told.count("token frequencies alone") == 3

    before = output.read_bytes()
    study("scratch", made, output, num_seeds=1, steps=2)
    assert output.read_bytes() == before
    with pytest.raises(SystemExit, match="other settings"):
        study("scratch", made, output, num_seeds=1, steps=3)


def test_a_tuned_model_is_measured_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_scoring_rules, "open_model", lambda: open_model(TINY))
    made = material(TINY)
    found = run("smoothed", "brier, with masked log", 0, 2, made)["measures"]
    before = held_out_figures(TINY, made.held_out)
    assert found["num_targets"] == before["num_targets"] > 0
    assert found["log_loss"] != before["log_loss"]
    assert found["num_pairs"] > 0
    assert found["num_lists"] > 1
    assert found["first_pass_wer"] > 0
    assert found["num_tokens"] > 50
    assert all(math.isfinite(value) for value in found.values())


def test_smoothed_arms_differ_in_the_masked_log_alone() -> None:
    arms = FIGURES["smoothed"].arms
    assert [(rule.name, rule.has_masked_log) for rule in arms.values()] == [
        ("brier", True),
        ("brier", False),
        ("spherical", True),
        ("spherical", False),
        ("log", False),
    ]
    assert {rule.smoothing for rule in arms.values()} == {0.1}
    assert list(jobs("finetuned", 1)) == [("before", 0), ("log", 0), ("brier", 0), ("spherical", 0)]


def test_the_committed_tables_are_those_of_the_committed_runs() -> None:
    results = study_scoring_rules.RESULTS
    told = results.with_suffix(".md").read_text(encoding="utf-8").split("Means (", 1)[1]
    assert told == page(read_results(results)).split("Means (", 1)[1]


def test_spread_names_the_extremes_of_several_seeds() -> None:
    assert spread([1.0, 2.0, 4.5], "wer") == "2.5 (1.0 to 4.5)"
    assert spread([0.25], "accuracy") == "0.250"
    assert spread([-1.0, -2.0], "tail_mean") == "-1.50 (-2.00 to -1.00)"
