"""The tests of the scoring-rule operators, on this GPU: autograd, opcheck, torch.compile, scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_run import run_tests

FILES = ("test_operators.py", "test_operator_compilation.py", "test_linear_score.py", "test_chunked.py")


def run(dry: bool, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    return run_tests(("test_linear_score.py",), "ragged") if dry else run_tests(FILES)
