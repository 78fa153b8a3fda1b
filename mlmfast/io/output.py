"""An output file that a killed run can continue, with nothing lost and nothing doubled."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, TracebackType
from typing import IO, Any

from mlmfast.errors import OutputError
from mlmfast.io.json_text import to_json
from mlmfast.io.meta import Meta, Progress, meta_path, read_meta, settings_differences, write_meta

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # no advisory locks on this system: two runs on one output are not noticed
    fcntl = None

# What flock says on a file system that has no locks.
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


@dataclass(frozen=True)
class State:
    """How far the output is: what is safe on disk, the hash behind it, and what waits to be written.

    Replaced in one assignment, so that an interrupt at any moment leaves a consistent one.
    """

    progress: Progress
    input_hash: Any
    # (record, input record consumed, totals after it)
    pending: list[tuple[bytes, bytes, dict[str, Any]]] = field(default_factory=list)


class ResumableOutput:
    """The output file `path`, with `path`.meta.json beside it; a context manager.

    `settings` is JSON that says what made the output. On resume it must equal that of the file, except
    for "environment". `header` is what a fresh file starts with. Records are safe on disk after
    `flush_records` of them or `flush_seconds`, also while no other comes, and at the end, however it comes.

    After entering, `already_written` is the number of records to pass over: call `skip` for each of those
    input records, then `write` for the others, then `finish`. If `already_complete`, nothing is left to do.

    Without `resume` an existing file is overwritten only if it is empty, or a meta of ours beside it says
    it is complete or has no records yet. Every refusal and every failure to write is an OutputError.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        settings: dict[str, Any],
        resume: bool,
        header: str = "",
        flush_records: int = 10_000,
        flush_seconds: float = 2.0,
    ) -> None:
        self.path = Path(path)
        self.already_written = 0
        self.already_complete = False
        self._settings: dict[str, Any] = json.loads(to_json(settings))
        self._resume = resume
        self._header = header
        self._flush_records = flush_records
        self._flush_seconds = flush_seconds
        self._skipped = 0

    def __enter__(self) -> ResumableOutput:
        with os_errors_named(self.path):
            self._file = open_locked(self.path)
            try:
                self._state = self._begin()
            except BaseException:
                self._file.close()
                raise
        self._lock = threading.Lock()  # of the state and the file, once `_flusher` runs
        self._ended = threading.Event()
        self._flusher = threading.Thread(target=self._flush_regularly, daemon=True)
        self._flusher.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        with self._file:
            self._flusher.join()
            if self._state.pending:
                self._flush()

    def skip(self, consumed: str) -> None:
        """Passes over an input record that the file already answers.

        Raises OutputError after the last of them if they are not those it was written for.
        """
        if self._skipped == self.already_written:
            raise OutputError(
                f"{self.path} has only {self.already_written} records to skip; write the next one"
            )
        feed(self._state.input_hash, consumed.encode("utf-8", "surrogatepass"))
        self._skipped += 1
        if self._skipped < self.already_written:
            return
        if self._state.input_hash.hexdigest() != self._state.progress.input_sha256:
            raise OutputError(
                f"the input differs from the one {self.path} was started with, within its first "
                f"{self.already_written} records; give the same input, or delete the output"
            )

    @property
    def totals(self) -> dict[str, Any]:
        """The totals written with the last record that is safe on disk; {} before the first."""
        return self._state.progress.totals

    def write(self, record_text: str, consumed: str, totals: dict[str, Any] | None = None) -> None:
        """Adds the lines of one record, which answers the input record `consumed`.

        totals: JSON figures over all records so far, to go on from after a resume.
        """
        self._require_all_skipped()
        if self._state.progress.complete:
            raise OutputError(
                f"{self.path} is complete with {self._state.progress.records} records, but the input "
                "goes on; delete the output to score it all again"
            )
        try:
            record = record_text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise OutputError(f"a record for {self.path} is not valid Unicode: {error}") from error
        with self._lock:
            pending = self._state.pending
            pending.append((record, consumed.encode("utf-8", "surrogatepass"), totals or {}))
            if len(pending) >= self._flush_records or not self._flusher.is_alive():
                self._flush()

    def finish(self, summary: dict[str, Any]) -> None:
        """Marks the output complete. Raises OutputError if the input was shorter than what is written."""
        self._require_all_skipped()
        with self._lock:
            if not self._state.progress.complete:
                self._flush(complete=True, summary=summary)

    def _begin(self) -> State:
        """The state to continue from, once it is clear that the file is ours to write."""
        size = os.fstat(self._file.fileno()).st_size
        meta = read_meta(self.path)
        if meta is None:
            if size:
                raise OutputError(
                    f"{self.path} exists and has no {meta_path(self.path).name} beside it, so it may not be "
                    "ours; move it away, or choose another output"
                )
        elif self._resume:
            self._check_resumable(meta, size)
            if meta.progress.records or meta.progress.complete:
                return self._continue_after(meta.progress)
        elif size and meta.progress.records and not meta.progress.complete:
            raise OutputError(
                f"{self.path} is the output of an unfinished run ({meta.progress.records} records); "
                "continue it with --resume, or delete it to start over"
            )
        return self._start_over()

    def _check_resumable(self, meta: Meta, size: int) -> None:
        differences = settings_differences(meta.settings, self._settings)
        if differences:
            raise OutputError(
                f"{self.path} was started with other settings ({'; '.join(differences)}); "
                "resume with the same, or delete it to start over"
            )
        expected = meta.progress.bytes
        if size < expected or (meta.progress.complete and size > expected):
            raise OutputError(
                f"{self.path} has {size} bytes where its meta file counts {expected}: it was changed since; "
                "restore it, or delete it and its meta file to start over"
            )

    def _continue_after(self, progress: Progress) -> State:
        self.already_written = progress.records
        self.already_complete = progress.complete
        return State(progress, hashlib.sha256())

    def _start_over(self) -> State:
        # The meta goes first: at no moment may one that counts records lie beside a file without them.
        write_meta(self.path, Meta(self._settings, Progress()))
        header = self._header.encode("utf-8")
        self._write_at(0, header)
        return State(Progress(bytes=len(header)), hashlib.sha256())

    def _require_all_skipped(self) -> None:
        if self._skipped < self.already_written:
            raise OutputError(
                f"{self.path} has {self.already_written} records already, but only {self._skipped} input "
                "records came before this: the input is shorter than the one it was started with"
            )

    def _flush_regularly(self) -> None:
        """Until the output ends, or cannot be written: then `write` flushes, and raises what is wrong."""
        with suppress(OutputError):
            while not self._ended.wait(self._flush_seconds):
                with self._lock:
                    if self._state.pending:
                        self._flush()

    def _flush(self, *, complete: bool = False, summary: dict[str, Any] | None = None) -> None:
        """Makes what is pending safe, data before meta; doing it again after an interrupt changes nothing."""
        state = self._state
        input_hash = state.input_hash.copy()
        for _, consumed, _ in state.pending:
            feed(input_hash, consumed)
        data = b"".join(record for record, _, _ in state.pending)
        progress = Progress(
            records=state.progress.records + len(state.pending),
            bytes=state.progress.bytes + len(data),
            input_sha256=input_hash.hexdigest(),
            complete=complete,
            totals=state.pending[-1][2] if state.pending else state.progress.totals,
        )
        with os_errors_named(self.path):
            self._write_at(state.progress.bytes, data)
            write_meta(self.path, Meta(self._settings, progress, summary))
        self._state = State(progress, input_hash)

    def _write_at(self, offset: int, data: bytes) -> None:
        self._file.seek(offset)
        self._file.truncate()
        write_all(self._file, data)
        os.fsync(self._file.fileno())


def feed(input_hash: Any, consumed: bytes) -> None:
    """Adds one input record, after its length: two records are never the same as one."""
    input_hash.update(len(consumed).to_bytes(8, "little"))
    input_hash.update(consumed)


def write_all(file: IO[bytes], data: bytes) -> None:
    """All of `data` to an unbuffered file. Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def open_locked(path: Path) -> IO[bytes]:
    """`path` open for reading and writing, its content untouched, for this process alone."""
    exists = path.exists()
    if exists and not path.is_file():
        raise OutputError(f"{path} is not a regular file; give a file, or - for standard output")
    file = path.open("r+b" if exists else "x+b", buffering=0)
    if fcntl is not None:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise OutputError(
                f"another run is writing {path}; wait for it, or choose another output"
            ) from error
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                file.close()
                raise
    return file


@contextmanager
def os_errors_named(path: Path) -> Iterator[None]:
    """Turns an OSError into an OutputError about `path`."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}; "
            "check the folder, its permissions and the free space"
        ) from error
