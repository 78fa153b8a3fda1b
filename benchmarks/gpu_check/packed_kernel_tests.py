"""The tests of the packed engine's kernels, and of the engine with them, on this GPU.

Each file apart, and in several processes, as kernels are compiled for many shapes: one that writes where it
must not leaves the device unusable to what its process does next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_run import ROOT, run_tests

FOLDER = ROOT / "tests" / "packed"
KERNELS = ("encoder_kernel_checks.py", "attention_checks.py")
ENGINE = ("packed_engine_checks.py", "long_text_checks.py")
"""A dry run leaves the engine to packed_correctness."""
DRY_SELECTION = "test_nothing_of_nothing or test_equal_columns or test_no_query"
PROCESSES = 8


def run(dry: bool, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    if dry:
        return run_tests(KERNELS, DRY_SELECTION, folder=FOLDER)
    found: dict[str, Any] = {}
    for name in (*KERNELS, *ENGINE):
        found[name] = run_tests((name,), folder=FOLDER, processes=PROCESSES)
        save(found)
    failed = [name for name, tests in found.items() if "error" in tests or not tests["tests"]]
    return {"error": f"see {', '.join(failed)}"} if failed else {}
