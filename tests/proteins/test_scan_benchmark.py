"""The script that scores a real scan, on a sample of it."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny_models import DATA, MODELS

from mlmfast.metrics import spearman

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_script_prints_what_the_scores_are() -> None:
    scan = DATA / "proteins" / "beta_lactamase.csv"
    command = [sys.executable, ROOT / "benchmarks" / "variants_dms.py", scan, scan.with_suffix(".fasta")]
    options = [MODELS / "esm2", MODELS / "sapiens-vh", "--published", "esm1v", "--pppl-limit", "2"]
    run = subprocess.run([*command, *options], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    with scan.open() as file:
        rows = list(csv.DictReader(file))
    published = np.array([[float(row[f"esm1v_{k}"]) for k in range(1, 6)] for row in rows])
    mean = spearman(published.mean(axis=1), [float(row["DMS_score"]) for row in rows])
    found = re.search(r"published  mean of the 5 +(\S+)", run.stdout)
    assert found is not None
    assert float(found[1]) == pytest.approx(mean, abs=5e-5)
    for way in (
        "wt-marginals: 100",
        "mutant-marginals: 100",
        "pppl: 2",
        "masked-marginals, context mutant: 100",
    ):
        assert f"  {way} variants" in run.stdout
    assert run.stdout.count("largest difference from context wild-type: 0.0e+00") == 2
