"""metrics.jsonl of a run: a line per step and per evaluation."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType

from mlmfast.errors import OutputError
from mlmfast.io.json_text import to_json
from mlmfast.io.output import open_locked, os_errors_named, write_all
from mlmfast.types import JsonRecord


class MetricsFile:
    """Lines are readable as soon as they are added, and safe from a crash after `sync`.

    A context manager that holds the file's lock, so that two runs cannot write one folder.
    """

    def __init__(self, path: Path) -> None:
        """Raises OutputError if another run writes it, or it cannot be written."""
        self.path = path
        with os_errors_named(path):
            self._file = open_locked(path)

    def __enter__(self) -> MetricsFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def cut(self, size: int) -> None:
        """Drops what was added after the first `size` bytes. Raises OutputError if there are fewer."""
        there = os.fstat(self._file.fileno()).st_size
        if there < size:
            raise OutputError(
                f"{self.path} has {there} bytes where the checkpoint counts {size}: it was changed since; "
                "restore it, or delete the folder to start over"
            )
        with os_errors_named(self.path):
            self._file.truncate(size)
            self._file.seek(size)

    def add(self, record: JsonRecord) -> None:
        with os_errors_named(self.path):
            write_all(self._file, (to_json(record) + "\n").encode("utf-8"))

    def sync(self) -> int:
        """Makes all lines safe; the bytes they are."""
        with os_errors_named(self.path):
            os.fsync(self._file.fileno())
        return self._file.tell()


def read_metrics(path: Path) -> list[JsonRecord]:
    """The records of a metrics file. Raises OutputError if it is not one."""
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise OutputError(f"{path} is not a readable metrics file ({error}); restore it") from error
