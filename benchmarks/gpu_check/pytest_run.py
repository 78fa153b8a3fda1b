"""Tests as a part of the check."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent.parent
SCORING_RULES = ROOT / "tests" / "scoring_rules"


def run_tests(
    files: tuple[str, ...], selection: str = "", *, folder: Path = SCORING_RULES, processes: int = 1
) -> dict[str, Any]:
    """How many tests there were in files of a folder, which were skipped or failed, and why.

    processes: more than one where pytest-xdist is there.
    """
    arguments = [*(str(folder / name) for name in files), "-k", selection]
    if processes > 1 and find_spec("xdist") is not None:
        arguments += ["-n", str(processes)]
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        # Not from ROOT, whose mlmfast, without a core, -m would find first.
        tests = subprocess.run([*command, *arguments], cwd=scratch, capture_output=True, text=True)
        if not report.exists():
            return {"error": (tests.stdout + tests.stderr)[-4000:]}
        cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    found: dict[str, Any] = {
        "tests": len(cases),
        "skipped": {name_of(case): reason(case) for case in cases if case.find("skipped") is not None},
        "impls": {impl: sum(impl in name_of(case) for case in cases) for impl in ("triton", "cuda", "torch")},
    }
    if failed or tests.returncode:
        found["failed"] = {name_of(case): reason(case) for case in failed[:40]}
        found["error"] = f"{len(failed)} tests failed, exit status {tests.returncode}"
    return found


def name_of(case: ElementTree.Element) -> str:
    return f"{case.get('classname')}::{case.get('name')}"


def reason(case: ElementTree.Element) -> str:
    return next(iter(case)).get("message", "")[:300]
