"""Tests of the scoring rules as a part of the check."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

FOLDER = Path(__file__).resolve().parent.parent.parent / "tests" / "scoring_rules"


def run_tests(files: tuple[str, ...], selection: str = "") -> dict[str, Any]:
    """How many tests of tests/scoring_rules there were, which were skipped or failed, and why."""
    arguments = [*(str(FOLDER / name) for name in files), "-k", selection]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        tests = subprocess.run([*command, *arguments], capture_output=True, text=True)
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
