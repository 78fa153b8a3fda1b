"""The state of a run in one file, replaced as a whole: after a crash there is the old one or the new one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mlmfast.errors import OutputError
from mlmfast.io.meta import sync_folder
from mlmfast.io.output import os_errors_named


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to go on as if it had not stopped.

    step: steps done; model, optimiser: their state_dicts; metrics_bytes: of the metrics file then;
    settings_sha256: of what the run was started with.
    """

    step: int
    model: dict[str, Any]
    optimiser: dict[str, Any]
    metrics_bytes: int
    settings_sha256: str


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Raises OutputError; the checkpoint that was there is then still there."""
    temporary = path.with_name(path.name + ".tmp")
    content = {f: getattr(checkpoint, f) for f in Checkpoint.__dataclass_fields__}
    with os_errors_named(path):
        with temporary.open("wb") as file:
            try:
                torch.save(content, file)
            except RuntimeError as error:  # how torch reports a write that came to nothing
                raise OSError(str(error).splitlines()[0]) from error
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)


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
