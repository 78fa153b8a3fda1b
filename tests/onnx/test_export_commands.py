"""`mlmfast export`, scoring with what it wrote, and the example that does so without mlmfast."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tiny_models import MODELS, read_lines, tiny_scorer
from typer.testing import CliRunner

import mlmfast
from mlmfast.cli import app

Export = Callable[..., Path]
EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "score_onnx.py"
TEXTS = [*read_lines("inaugural.txt")[:3], "", "The [MASK] of the people"]
WITHOUT_MLMFAST = """
import runpy, sys
for name in ("mlmfast", "torch", "transformers", "onnx"):
    sys.modules[name] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_example(folder: Path, texts: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_MLMFAST, EXAMPLE, folder],
        input="".join(f"{text}\n" for text in texts),
        capture_output=True,
        text=True,
    )


def rows_of(run: subprocess.CompletedProcess[str]) -> list[list[str]]:
    assert run.returncode == 0, run.stderr
    return [line.split("\t") for line in run.stdout.splitlines()]


def test_the_example_scores_with_a_pll_graph(exported: Export) -> None:
    rows = rows_of(run_example(exported("bert", "pll"), TEXTS))
    for (score, num_tokens, text), expected in zip(rows, tiny_scorer("bert").score(TEXTS), strict=True):
        assert (int(num_tokens), text) == (expected.num_tokens, expected.text)
        if expected.score is None:
            assert score == "null"
        else:
            assert float(score) == pytest.approx(expected.score, abs=1e-3)


@pytest.mark.parametrize("head", ["token", "cls"])
def test_the_example_scores_with_a_student(head: str, exported: Export, students: dict[str, Path]) -> None:
    rows = rows_of(run_example(exported(students[head], "single-pass"), TEXTS))
    with mlmfast.load(students[head], engine="torch", workers=1) as scorer:
        for (score, _, _), expected in zip(rows, scorer.score(TEXTS), strict=True):
            assert (
                score == "null"
                if expected.score is None
                else float(score) == pytest.approx(expected.score, abs=1e-3)
            )


def test_the_example_refuses_what_it_cannot_score(exported: Export) -> None:
    run = run_example(exported("bert", "masked"), TEXTS)
    assert run.returncode == 1
    assert "is a masked graph" in run.stderr
    run = run_example(exported("bert", "pll"), ["short", "the " * 80])
    assert run.returncode == 1
    assert "line 2: 82 tokens, but the model takes 64" in run.stderr


@pytest.fixture
def _signals_restored() -> Iterator[None]:
    """The commands here run in this process, and take over its SIGTERM."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.usefixtures("_signals_restored")
def test_export_and_score_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = CliRunner()
    options = ["--kind", "masked", "--model", str(MODELS / "bert"), "--output"]
    said = command.invoke(app, ["export", *options, str(tmp_path / "graph")])
    assert said.exit_code == 0, said.output
    assert "masked graph of" in said.output
    assert "real texts: off by" in said.output
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    scored = command.invoke(app, ["score", str(lines), "--model", str(tmp_path / "graph"), "--workers", "1"])
    assert scored.exit_code == 0, scored.output
    found = [json.loads(line)["score"] for line in scored.output.splitlines() if line.startswith("{")]
    expected = [result.score for result in tiny_scorer("bert").score(TEXTS)]
    assert found == [None if score is None else pytest.approx(score, abs=1e-3) for score in expected]
    monkeypatch.setattr("mlmfast.export.export_model", lambda *_, **__: {})
    quiet = command.invoke(app, ["export", *options, str(tmp_path / "again"), "--quiet"])
    assert (quiet.exit_code, quiet.output) == (0, "")
