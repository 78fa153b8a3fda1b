"""Optional packages: absent ones are named with the extra that brings them."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = """
import sys
sys.modules[{package!r}] = None
import mlmfast
try:
    mlmfast.load(engine="torch")
except mlmfast.MissingExtraError as error:
    print(error)
"""


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_missing_packages_name_their_extra(package: str) -> None:
    code = BLOCKED.format(package=package)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"needs the package {package!r}" in run.stdout
    assert "pip install 'mlmfast[torch]'" in run.stdout
