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


def require_place_for(option: str, path: Path, *others: str | Path | None) -> None:
    """Before the work is done: raises SettingsError for a folder, a file whose folder is not there, or one of
    the others that the command reads or writes."""
    if path.is_dir():
        raise SettingsError(f"{option} {path}: this is a folder; name a file")
    if not path.absolute().parent.is_dir():
        raise SettingsError(f"{option} {path}: there is no folder {path.parent}; make it first")
    for other in others:
        if other not in (None, "-") and Path(other).resolve() == path.resolve():
            raise SettingsError(f"{option} {path}: the command reads or writes this file, too; name another")


def require_held_out_apart(texts: list[str], held_out: str | None) -> None:
    """Raises SettingsError if the held-out file is one of the texts."""
    for text in texts if held_out is not None and Path(held_out).exists() else ():
        if Path(text).exists() and Path(text).samefile(Path(str(held_out))):
            raise SettingsError(f"{held_out} is among the texts to train on, so it is not held out")


def write_text(path: Path, content: str) -> None:
    """As `write_whole`. Raises OutputError if it cannot be written."""
    with os_errors_named(path):
        write_whole(path, content)
