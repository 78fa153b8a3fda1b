"""`python -m pytest benchmarks --benchmark-only` collects bench_stages.py; the rest are scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

STAGES = "bench_stages.py"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    # A file named on the command line is collected by pytest itself, whatever its name.
    if file_path.name != STAGES or parent.session.isinitpath(file_path):
        return None
    return pytest.Module.from_parent(parent, path=file_path)
