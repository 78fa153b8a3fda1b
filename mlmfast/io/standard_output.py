"""Standard output, written through the same methods as a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, ClassVar

from mlmfast.errors import OutputError, SettingsError
from mlmfast.io.output import ResumableOutput


class StdoutOutput:
    """Records to standard output (or `stream`) as they come, without meta; a context manager.

    When the reader goes away (`| head`), `write` raises BrokenPipeError, which ends the `with` block quietly.
    """

    already_written = 0
    already_complete = False
    totals: ClassVar[dict[str, Any]] = {}

    def __init__(self, *, header: str = "", stream: BinaryIO | None = None) -> None:
        self._header = header
        if stream is None and sys.stdout is None:
            raise OutputError("standard output is closed; name a file with --output")
        self._stream = sys.stdout.buffer if stream is None else stream
        self._reader_left = False

    def __enter__(self) -> StdoutOutput:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return self._reader_left and isinstance(error, BrokenPipeError)

    def write(self, record_text: str, consumed: str, totals: dict[str, Any] | None = None) -> None:
        """Writes the lines of one record; `consumed` and `totals` are of no use here."""
        self._send(record_text)

    def skip(self, consumed: str) -> None:
        """Raises OutputError: standard output never starts with records already written."""
        raise OutputError("standard output has no records to skip; write the next one")

    def finish(self, summary: dict[str, Any]) -> None:
        """Sends the header if no record did; the summary is for files."""
        self._send("")

    def _send(self, text: str) -> None:
        try:
            self._stream.write((self._header + text).encode("utf-8"))
            self._stream.flush()
            self._header = ""
        except BrokenPipeError:
            self._reader_left = True
            self._discard_buffer()
            raise
        except OSError as error:
            self._discard_buffer()
            raise OutputError(f"cannot write standard output: {error.strerror or error}") from error

    def _discard_buffer(self) -> None:
        # What is still buffered would raise once more when Python closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


def open_output(
    path: str | Path, *, settings: dict[str, Any], resume: bool, header: str = ""
) -> ResumableOutput | StdoutOutput:
    """The output for `path`, "-" being standard output, which cannot be resumed (SettingsError).

    Raises SettingsError for a name that says gzip, see `require_uncompressed`.
    """
    require_uncompressed(path)
    if str(path) != "-":
        return ResumableOutput(path, settings=settings, resume=resume, header=header)
    if resume:
        raise SettingsError("standard output cannot be resumed; name a file with --output")
    return StdoutOutput(header=header)


def require_uncompressed(path: str | Path) -> None:
    """Raises SettingsError for a name that ends with .gz: outputs are plain, so that a killed run can
    continue them."""
    if str(path).endswith(".gz"):
        raise SettingsError(
            f"{path}: outputs are not compressed; name a file without .gz, or write to standard output "
            "through gzip"
        )
