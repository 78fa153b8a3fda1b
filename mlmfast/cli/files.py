"""Files a command is given or writes."""

from __future__ import annotations

from pathlib import Path

from mlmfast.errors import SettingsError
from mlmfast.io.meta import write_whole
from mlmfast.io.output import os_errors_named


def require_different_files(source: str, output: str) -> None:
    """Raises SettingsError if the output would replace the input before it is read."""
    files = (Path(source), Path(output))
    if "-" not in (source, output) and all(file.exists() for file in files) and files[0].samefile(files[1]):
        raise SettingsError(f"{output} is the input, too; choose another output")


def write_text(path: Path, content: str) -> None:
    """As `write_whole`. Raises OutputError if it cannot be written."""
    with os_errors_named(path):
        write_whole(path, content)
