"""mlmfast with its compiled core, where the parts after this find it.

The packed engine reads its weights through the core, and the native engine is what it is compared with; a
checkout has none. pip builds the package as anyone's, into build/gpu-check, which comes first on the path of
the later parts: with the scikit-build-core, pybind11, cmake and ninja of this python, so that nothing is
fetched. What has not changed since the last time is not compiled again. A dry run takes the core that is
installed, and says what of these a build here would have.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "build" / "gpu-check"
SITE = FOLDER / "site"
"""A folder of python's path."""
NEEDED = ("pip", "scikit_build_core", "pybind11")
PROGRAMS = ("cmake", "ninja", "c++")


def run(dry: bool, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    if dry:
        return {"core": described_core(), "tools": tools()}
    built = subprocess.run(build_command(), cwd=ROOT, capture_output=True, text=True)
    if built.returncode:
        return {"error": (built.stdout + built.stderr)[-4000:], "tools": tools()}
    return imported_core()


def imported_core() -> dict[str, str]:
    """From SITE, in a process of its own."""
    check = [sys.executable, "-c", "import core_build; print(core_build.described_core())"]
    path = {"PYTHONPATH": os.pathsep.join([str(SITE), str(Path(__file__).parent)])}
    # Not from ROOT, whose mlmfast, without a core, -c would find first.
    imported = subprocess.run(check, cwd=SITE, env=os.environ | path, capture_output=True, text=True)
    key = "error" if imported.returncode else "core"
    return {key: (imported.stdout + imported.stderr).strip()[-4000:]}


def build_command() -> list[str]:
    arguments = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation"]
    places = ["--upgrade", "--target", str(SITE), f"-Cbuild-dir={FOLDER / 'core'}"]
    return [sys.executable, "-m", "pip", "install", *arguments, *places, str(ROOT)]


def described_core() -> str:
    from mlmfast import _core

    return f"{_core.__file__}: {' '.join(_core.available_isas())}"


def tools() -> dict[str, str]:
    """Where each thing that a build needs is."""
    modules = {name: str(find_spec(name) is not None) for name in NEEDED}
    folder = Path(sys.executable).parent
    programs = {name: shutil.which(name) or shutil.which(name, path=str(folder)) for name in PROGRAMS}
    return modules | {name: place or "absent" for name, place in programs.items()}
