"""A folder that `mlmfast export` wrote: its files, and what it says of its graph."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from mlmfast.errors import ModelError
from mlmfast.models import ModelConfig
from mlmfast.models.checkpoint import DESCRIPTION, EXTERNAL_DATA, GRAPH
from mlmfast.types import JsonRecord

FORMAT_VERSION = 1
KINDS = ("single-pass", "masked", "pll")
PRECISIONS = ("float32", "float16", "int8")
METADATA_PREFIX = "mlmfast."
"""Begins the names under which the graph's own metadata repeats the description."""


@dataclass(frozen=True)
class GraphDescription:
    """kind: one of KINDS; precision: one of PRECISIONS; values: the whole of mlmfast_onnx.json."""

    kind: str
    precision: str
    values: JsonRecord

    def metadata(self) -> dict[str, str]:
        """The description as the graph's metadata properties: strings as they are, the rest as JSON."""
        return {
            METADATA_PREFIX + name: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
            for name, value in self.values.items()
        }

    def require_fitting(self, folder: Path, config: ModelConfig) -> None:
        """Raises ModelError if the config.json beside it is that of another model, or was changed."""
        kind = "student" if self.kind == "single-pass" else "masked"
        described = (kind, self.values.get("head"), self.values.get("max_length"))
        found = (config.kind, config.student_head, config.max_length)
        for name, one, other in zip(("kind", "head", "max_length"), described, found, strict=True):
            if one != other:
                raise ModelError(
                    f"{folder}: its graph is of a model with {name} {one!r}, the configuration beside it of "
                    f"one with {other!r}; they are not of one export, export again"
                )


def is_export(folder: Path) -> bool:
    return (folder / DESCRIPTION).is_file()


def graph_files(folder: Path) -> tuple[Path, ...]:
    """The graph and, where its weights lie beside it, those. Raises ModelError."""
    if not (folder / GRAPH).is_file():
        raise ModelError(f"{folder}: has {DESCRIPTION}, but no {GRAPH}; export the model again")
    return tuple(path for name in (GRAPH, EXTERNAL_DATA) if (path := folder / name).is_file())


def read_description(folder: Path) -> GraphDescription:
    """Raises ModelError if the description is damaged or of another version."""
    path = folder / DESCRIPTION
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        version, kind, precision = (values[name] for name in ("format_version", "kind", "precision"))
    except (ValueError, LookupError, TypeError) as error:
        raise ModelError(f"{path}: not a description of an exported graph ({error!r})") from error
    if version != FORMAT_VERSION:
        raise ModelError(
            f"{path}: format version {version!r}, but this version reads {FORMAT_VERSION}; export again"
        )
    for name, value, known in (("kind", kind, KINDS), ("precision", precision, PRECISIONS)):
        if value not in known:
            raise ModelError(f"{path}: {name} is {value!r}; expected one of {', '.join(known)}")
    return GraphDescription(kind, precision, values)
