"""Exports of the tiny models, made once a session: tracing one takes seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from student_models import make_student
from tiny_models import MODELS

from mlmfast.export import export_model, graphs

Export = Callable[..., Path]


@pytest.fixture(scope="session", autouse=True)
def _programs_are_traced_once() -> Iterator[None]:
    """Kinds and precisions of a model that share a program get the same one."""
    programs: dict[object, Any] = {}
    trace = graphs.exported_program

    def traced(module: Any) -> Any:
        key = (type(module), module.network.name_or_path, module.network.dtype)
        if key not in programs:
            programs[key] = trace(module)
        return programs[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphs, "exported_program", traced)
        yield


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Export:
    """exported(model, kind, precision) is the folder of an export, not to be changed."""
    folders: dict[tuple[str, str, str], Path] = {}

    def export(model: str | Path, kind: str, precision: str = "float32") -> Path:
        key = (str(model), kind, precision)
        if key not in folders:
            folders[key] = tmp_path_factory.mktemp("export") / "graph"
            export_model(MODELS / model, kind=kind, precision=precision, output=folders[key])
        return folders[key]

    return export


@pytest.fixture(scope="session")
def students(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Students of bert by their head."""
    return {
        head: make_student(tmp_path_factory.mktemp(head) / "student", "bert", head=head)
        for head in ("token", "cls")
    }
