"""Every snippet and command of the README runs, in a folder of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    line.removeprefix("$ ").split("  #")[0].strip()
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("$ ")
]
RUN_BY_CI = {"make demo", "make test", "make lint", "make bench", "pip install ."}
"""What .ci/run and test_packaging.py run: they set up environments, which a test inside one cannot."""


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_python_snippets_run(snippet: str, tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", snippet], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()


def test_commands_run_in_order(tmp_path: Path) -> None:
    commands = [c for c in COMMANDS if c not in RUN_BY_CI]
    assert any(c.startswith("mlmfast score") for c in commands)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    scripts = Path(sys.executable).parent
    for command in commands:
        run = subprocess.run(
            ["bash", "-c", f'PATH="{scripts}:$PATH"; set -euo pipefail; {command}'],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, f"{command}\n{run.stderr}"
        assert run.stdout.strip() or "--output" in command, command


def test_makefile_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert {c.split()[1] for c in RUN_BY_CI if c.startswith("make ")} <= targets
    assert set(COMMANDS) >= RUN_BY_CI
