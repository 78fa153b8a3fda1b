"""Lazy imports of optional dependencies, with an error that names the extra to install."""

from __future__ import annotations

import importlib
from types import ModuleType

from mlmfast.errors import MissingExtraError


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import `module`, or raise MissingExtraError naming `mlmfast[extra]` and what it is needed for."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{purpose} needs the package {module.split('.')[0]!r}, which cannot be imported ({error}); "
            f"install it with: pip install 'mlmfast[{extra}]'"
        ) from error
