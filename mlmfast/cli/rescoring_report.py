"""The page that `rescore`, `tune` and `eval` write with --report."""

from __future__ import annotations

from pathlib import Path

from mlmfast.cli.files import require_place_for, write_text
from mlmfast.errors import SettingsError
from mlmfast.reports import Report, render, require_packages

ENDINGS = (".html", ".htm")


def check_report(path: Path | None, *others: str | Path | None) -> None:
    """Before the work is done: raises SettingsError for a file that cannot become a page, or is one of the
    others that the command reads or writes, MissingExtraError without the packages that make a page."""
    if path is None:
        return
    if path.suffix.lower() not in ENDINGS:
        raise SettingsError(f"--report {path}: expected a file whose name ends with .html")
    require_place_for("--report", path, *others)
    require_packages()


def page_title(command: str, source: str) -> str:
    return f"mlmfast {command}: {'standard input' if source == '-' else Path(source).name}"


def write_report(path: Path, report: Report) -> None:
    """Raises OutputError if it cannot be written."""
    write_text(path, render(report))
