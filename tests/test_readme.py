"""Every snippet and command of the README and the pages of docs runs, in a folder of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import mlmfast
from mlmfast.cli.option_groups import EngineOptions
from mlmfast.engines.base import ENGINES, PRECISIONS

ROOT = Path(__file__).parent.parent
PAGES = {
    page.name: page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *ROOT.glob("docs/*.md"))
}

SNIPPETS = [
    snippet for page in PAGES.values() for snippet in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
]
COMMANDS = {
    name: [
        line.removeprefix("$ ").split("  #")[0].strip()
        for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL)
        for line in block.splitlines()
        if line.startswith("$ ")
    ]
    for name, page in PAGES.items()
}
RUN_BY_CI = {"make demo", "make test", "make lint", "make bench", "pip install ."}
"""What .ci/run and test_packaging.py run: they set up environments, which a test inside one cannot."""


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_python_snippets_run(snippet: str, tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", snippet], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()


@pytest.mark.parametrize("page", PAGES)
def test_commands_run_in_order(page: str, tmp_path: Path) -> None:
    commands = [c for c in COMMANDS[page] if c not in RUN_BY_CI]
    assert any(c.startswith("mlmfast ") for c in commands)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for folder in ("nbest", "proteins", "models/sapiens-vh"):
        shutil.copytree(ROOT / "tests" / "data" / folder, tmp_path / "tests" / "data" / folder)
    scripts = Path(sys.executable).parent
    settings = ""
    for command in commands:
        if re.fullmatch(r"[A-Z]+=\S+", command):
            settings += f"{command}; "
            continue
        run = subprocess.run(
            ["bash", "-c", f'PATH="{scripts}:$PATH"; set -euo pipefail; {settings}{command}'],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, f"{command}\n{run.stderr}"
        assert run.stdout.strip() or "--output" in command, command


def test_every_engine_and_precision_is_named() -> None:
    """In the README, by load, and in the help of the command line."""
    helps = {
        name: get_args(hint)[1].help
        for name, hint in get_type_hints(EngineOptions, include_extras=True).items()
    }
    for precision in PRECISIONS:
        assert f"\n| `{precision}`" in PAGES["README.md"]
        assert f"`{precision}`" in (mlmfast.load.__doc__ or "")
        assert precision in re.findall(r"\w+", helps["precision"])
    for engine in ENGINES:
        assert f"`{engine}`" in (mlmfast.load.__doc__ or "")
        assert engine in re.findall(r"\w+", helps["engine"])


def test_makefile_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    made = {c for c in RUN_BY_CI if c.startswith("make ")}
    assert {c.split()[1] for c in made} <= targets
    assert made <= set((ROOT / ".ci" / "run").read_text().splitlines())
    assert set(COMMANDS["README.md"]) >= RUN_BY_CI


def test_the_rescoring_example_runs() -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "examples" / "rescore_speech.py"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    rows = [[float(cell) for cell in re.findall(r"\d+\.\d+", line)] for line in run.stdout.splitlines()[4:]]
    assert len(rows) == 2
    for _, first_pass, tuned, oracle in rows:
        assert oracle <= tuned < first_pass
