"""The floors of the design: imports go down, and the heavy packages load only where they are needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mlmfast

PACKAGE = Path(mlmfast.__file__).parent
FLOORS = (
    ("types", "errors", "results", "extras", "random_streams", "_core", "data"),
    ("io", "tokenization", "scheduling", "kernels"),
    ("engines", "models", "functional", "nn"),
    (
        "scorer",
        "scoring",
        "energies",
        "loading",
        "metrics",
        "plans",
        "window_groups",
        "window_results",
        "windows",
        "workers",
    ),
    ("rescoring", "generation", "training", "export", "evaluation", "proteins", "reports"),
    ("cli", "serving"),
)
FLOOR_OF = {part: floor for floor, parts in enumerate(FLOORS) for part in parts}
HEAVY = ("torch", "transformers", "onnxruntime", "triton")
HELP = """
import sys
sys.argv = ["mlmfast", "--help"]
from mlmfast.cli import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
"""
FILES = sorted(PACKAGE.rglob("*.py"))


def imports_of(source: str, package: str) -> Iterator[str]:
    """Full names of all modules imported anywhere in a file, also inside functions and by `require`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("require", "import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.args[0].value


def names_in(file: Path) -> set[str]:
    package = ".".join(["mlmfast", *file.relative_to(PACKAGE).parts[:-1]])
    return set(imports_of(file.read_text(encoding="utf-8"), package))


def part_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def upward(part: str, names: set[str]) -> list[str]:
    """Imports of a part of mlmfast on a higher floor, or on none."""
    parts = {name.split(".")[1] for name in names if name.startswith("mlmfast.")}
    return sorted(p for p in parts if FLOOR_OF.get(p, len(FLOORS)) > FLOOR_OF[part])


def is_written(part: str) -> bool:
    return any(part_of(file) == part for file in FILES)


def is_module(part: str) -> bool:
    return (PACKAGE / part).is_dir() or (PACKAGE / f"{part}.py").is_file() or part == "_core"


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_imports_go_down(file: Path) -> None:
    part = part_of(file)
    if part == "__init__":
        names = {n for n in names_in(file) if n.startswith("mlmfast.")}
        assert {n.split(".")[1] for n in names if is_module(n.split(".")[1])} <= set(FLOOR_OF)
        return
    assert part in FLOOR_OF, f"{part} is on no floor of the design"
    names = {n for n in names_in(file) if not n.startswith("mlmfast.") or is_module(n.split(".")[1])}
    assert upward(part, names) == []


def test_all_of_the_package_is_walked() -> None:
    assert {"windows", "scheduling", "cli", "types"} <= {part_of(file) for file in FILES}


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("types", "from mlmfast.io import lines"),
        ("scheduling", "def f():\n    import mlmfast.windows"),
        ("kernels", "from mlmfast import engines"),
        ("engines", "from ..scorer import load"),
        ("windows", "import mlmfast.cli.run as r"),
    ],
)
def test_an_upward_import_is_seen(part: str, source: str) -> None:
    assert upward(part, set(imports_of(source, f"mlmfast.{part}")))


@pytest.mark.parametrize("part", [part for part in (*FLOORS[0], *FLOORS[1]) if is_written(part)])
def test_the_lower_floors_never_import_a_heavy_package(part: str) -> None:
    """But for the conversion of old tokenizer files, and kernels that work on torch's tensors."""
    files = [file for file in FILES if part_of(file) == part]
    assert files
    for file in files:
        heavy = {name.split(".")[0] for name in names_in(file)} & set(HEAVY)
        allowed = {"torch", "triton"} if part == "kernels" else set()
        if file == PACKAGE / "tokenization" / "files.py":
            allowed = {"transformers"}
        assert heavy <= allowed, file


@pytest.mark.parametrize(
    "program",
    [
        "import mlmfast",
        "import mlmfast.windows, mlmfast.scheduling, mlmfast.tokenization, mlmfast.io, mlmfast.metrics",
        "import mlmfast.kernels.head, mlmfast.kernels.rules",
        HELP,
    ],
    ids=["import", "stages", "kernels", "help"],
)
def test_starting_up_loads_no_heavy_package(program: str) -> None:
    check = f"\nimport sys\nprint('heavy:', sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program + check], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "heavy: []"
