"""The benchmark of the scoring rules, small: who agrees gets a ratio; no times are looked at."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from bench_scoring_rules import TOLERANCES, bench_losses, bench_scores, table
from rule_memory import memory_table
from rule_peers import EAGER, Shape

SMALL = Shape(num_rows=16, num_features=8, vocab_size=64)


def rows_of(text: str) -> list[list[str]]:
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[1:]]


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("rule", EAGER)
def test_everybody_agrees_with_float64(rule: str, dtype: torch.dtype) -> None:
    rows = rows_of(bench_losses(SMALL, dtype, rule, rounds=1, compiled=False, chunked=True))
    assert len(rows) == (7 if rule == "log" else 2)
    assert all(float(row[2]) > 0 for row in rows)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_scores_agree_with_float64(dtype: torch.dtype) -> None:
    rows = rows_of(bench_scores(SMALL, dtype, rounds=1))
    assert [row[0] for row in rows] == ["mlmfast", "torch eager"]
    assert all(float(row[2]) > 0 for row in rows)


def test_who_disagrees_gets_no_ratio_and_we_give_none_if_we_do() -> None:
    seconds = {"mlmfast": [1.0], "right": [3.0], "wrong": [2.0]}
    text = table(seconds, {"mlmfast": 0.0, "right": 0.0, "wrong": 1.0}, 1e-4)
    assert [row[2] for row in rows_of(text)] == ["1.00", "3.00", "disagrees"]
    assert "right, takes 3.00 times as long" in text
    ours_wrong = table(seconds, {"mlmfast": 1.0, "right": 0.0, "wrong": 0.0}, 1e-4)
    assert [row[2] for row in rows_of(ours_wrong)] == ["disagrees"] * 3
    assert "times as long." not in ours_wrong


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_memory_counts_logits_that_are_stored() -> None:
    shape = Shape(num_rows=512, num_features=8, vocab_size=20000)
    megabytes = {row[0]: float(row[1]) for row in rows_of(memory_table(shape, torch.float32))}
    assert megabytes["torch eager"] > shape.logits_mb
    assert megabytes["mlmfast"] < shape.logits_mb / 2
