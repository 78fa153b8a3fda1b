"""The tests of the scoring-rule kernels, on this GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuda_build import LIBRARY
from pytest_run import run_tests

FILES = ("test_kernels.py", "triton_checks.py", "triton_score_checks.py")


def run(dry: bool, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    if dry:
        return run_tests(FILES, "triton and near_certainty or equal_logits")
    found = run_tests(FILES)
    expected = ("triton", "cuda") if LIBRARY.exists() else ("triton",)
    missing = [impl for impl in expected if not found.get("impls", {}).get(impl)]
    if missing:
        found.setdefault("error", f"no test ran for {', '.join(missing)}")
    return found
