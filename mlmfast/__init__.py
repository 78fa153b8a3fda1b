"""mlmfast: fast, exact scoring of text with masked language models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlmfast.errors import (
    InputError,
    MissingExtraError,
    MlmfastError,
    ModelError,
    OutputError,
    SettingsError,
    TextTooLongError,
)
from mlmfast.results import TextScore
from mlmfast.types import Token, Word

if TYPE_CHECKING:
    from mlmfast.scorer import RowCounts, Scorer, load

    __version__: str

__all__ = [
    "InputError",
    "MissingExtraError",
    "MlmfastError",
    "ModelError",
    "OutputError",
    "RowCounts",
    "Scorer",
    "SettingsError",
    "TextScore",
    "TextTooLongError",
    "Token",
    "Word",
    "__version__",
    "load",
]


def __getattr__(name: str) -> object:
    # Loaded on first use, so that `import mlmfast` is quick and needs neither tokenizers nor an engine.
    if name == "__version__":
        from importlib.metadata import version

        return version("mlmfast")
    if name in ("RowCounts", "Scorer", "load"):
        from mlmfast import scorer

        return getattr(scorer, name)
    raise AttributeError(f"module 'mlmfast' has no attribute {name!r}")
