"""The state of a run in one file, replaced as a whole: after a crash there is the old one or the new one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch

from mlmfast.errors import OutputError
from mlmfast.io.meta import sync_folder
from mlmfast.io.output import os_errors_named


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to go on as if it had not stopped.

    step: steps done; model, optimiser: their state_dicts; metrics_bytes: of the metrics file then;
    settings_sha256: of what the run was started with; best: the weights that did best so far, where a run
    keeps them.
    """

    step: int
    model: dict[str, Any]
    optimiser: dict[str, Any]
    metrics_bytes: int
    settings_sha256: str
    best: dict[str, Any] | None = None


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Raises OutputError; the checkpoint that was there is then still there, and nothing beside it."""
    temporary = temporary_path(path)
    content = {f: getattr(checkpoint, f) for f in Checkpoint.__dataclass_fields__}
    with os_errors_named(path):
        try:
            with temporary.open("wb") as file:
                _save(content, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def temporary_path(path: Path) -> Path:
    """Where a file is written before it replaces the one at `path`."""
    return path.with_name(path.name + ".tmp")


def _save(content: dict[str, Any], file: IO[bytes]) -> None:
    """Raises OSError."""
    try:
        torch.save(content, file)
    except RuntimeError as error:  # torch's own words about an archive cut short, raised over the cause
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def read_checkpoint(path: Path, settings_sha256: str) -> Checkpoint | None:
    """None if there is none yet. Raises OutputError if it cannot be read or is another run's."""
    if not path.exists():
        return None
    try:
        checkpoint = Checkpoint(**torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # torch raises RuntimeError, EOFError, UnpicklingError and others
        raise OutputError(
            f"{path} is not a whole checkpoint ({type(error).__name__}: {str(error).splitlines()[0]}); "
            "restore it, or delete the folder to start over"
        ) from error
    if checkpoint.settings_sha256 != settings_sha256:
        raise OutputError(f"{path} is the checkpoint of another run; restore it, or delete the folder")
    return checkpoint
