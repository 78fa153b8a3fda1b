"""Rescored lists to a file or a folder."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any

from mlmfast.errors import OutputError, SettingsError
from mlmfast.io.lines import Source
from mlmfast.io.meta import Meta, Progress, write_meta
from mlmfast.io.output import os_errors_named
from mlmfast.io.standard_output import open_output
from mlmfast.rescoring.formats.base import Format
from mlmfast.rescoring.formats.names import check_names, check_new, replaceable
from mlmfast.rescoring.formats.registry import format_named
from mlmfast.rescoring.lists import NBestList, RescoredList

LISTS_PER_FLUSH = 1000


def open_lists(
    path: str | Path,
    format: str,
    *,
    settings: dict[str, Any],
    added: tuple[str, ...] = (),
    source: Source | None = None,
    resume: bool = False,
) -> ListsFile | ListsFolder:
    """The output for rescored lists; a context manager.

    format: of the input; one that has no writer is written as its `written_as`. added: the names of the
    added scores. source: the input; scores that an earlier run added to it may be replaced, where the
    format can. Inside, for each list: `skip` it, or `write` it if that says no; then `finish`. A file,
    also one that is a single JSON object, continues after a kill with `resume`, as ResumableOutput does;
    a folder is written anew, and is refused if it has anything in it.
    Raises SettingsError for a folder to resume or on standard output and for a name that the format cannot
    hold or, from `skip` and `write`, that a list has already; OutputError for what cannot be written.
    """
    known = format_named(format)
    if known.written_as is not None:
        known = format_named(known.written_as)
    check_names(added, known)
    replaced = replaceable(source, known)
    if known.write_files is None:
        return ListsFile(path, known, settings, added, replaced, resume)
    if resume or str(path) == "-":
        raise SettingsError(
            f"{known.name} lists are a folder, which is written in one run; name a new folder"
        )
    return ListsFolder(Path(path), known, settings, added, replaced)


class ListsFile:
    """Lists in one file or on standard output."""

    def __init__(
        self,
        path: str | Path,
        known: Format,
        settings: dict[str, Any],
        added: tuple[str, ...],
        replaced: frozenset[str],
        resume: bool,
    ) -> None:
        self._output = open_output(path, settings=settings, resume=resume)
        self._format = known
        self._added = added
        self._replaced = replaced
        self._columns: tuple[str, ...] = ()
        self._count = 0

    def __enter__(self) -> ListsFile:
        self._output.__enter__()
        self._totals = self._output.totals
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return self._output.__exit__(kind, error, traceback)

    @property
    def already_complete(self) -> bool:
        return self._output.already_complete

    @property
    def totals(self) -> dict[str, Any]:
        """The totals written with the last list that is safe on disk."""
        return self._output.totals

    def skip(self, nbest: NBestList) -> bool:
        """Passes over a list that the file has already; False if it has not, so that it is to be written."""
        check_new(nbest, {*self._added} - self._replaced, self._format)
        if self._count >= self._output.already_written:
            return False
        self._output.skip(canonical(nbest))
        self._pass(nbest)
        return True

    def write(self, rescored: RescoredList, totals: dict[str, Any] | None = None) -> None:
        assert self._format.write is not None
        check_new(rescored.nbest, rescored.features.keys() - self._replaced, self._format)
        columns = self._columns or self._columns_of(rescored.nbest)
        text = self._format.write(rescored, self._count, columns)
        self._output.write(text, canonical(rescored.nbest), totals)
        self._totals = totals or {}
        self._pass(rescored.nbest)

    def _columns_of(self, first: NBestList) -> tuple[str, ...]:
        """The feature names of all lists, those of the first one."""
        old = first.hypotheses[0].features if first.hypotheses else {"first_pass": 0.0}
        return tuple(dict.fromkeys([*old, *self._added]))

    def _pass(self, nbest: NBestList) -> None:
        self._columns = self._columns or self._columns_of(nbest)
        self._count += 1

    def finish(self, summary: dict[str, Any]) -> None:
        """Writes what comes after the last list, as a record of its own, and marks the file complete."""
        end = self._format.end(self._count)
        if self._count < self._output.already_written:
            self._output.skip("")
        elif end:
            self._output.write(end, "", self._totals)
        self._output.finish(summary)


class ListsFolder:
    """Lists in the files of a new folder; each file gains its lines list by list."""

    already_complete = False

    def __init__(
        self,
        folder: Path,
        known: Format,
        settings: dict[str, Any],
        added: tuple[str, ...],
        replaced: frozenset[str],
    ) -> None:
        self.totals: dict[str, Any] = {}
        self._folder = folder
        self._format = known
        self._settings = settings
        self._added = added
        self._replaced = replaced
        self._waiting: dict[str, list[str]] = defaultdict(list)
        self._count = 0

    def __enter__(self) -> ListsFolder:
        with os_errors_named(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            if any(self._folder.iterdir()):
                raise OutputError(f"{self._folder} has files in it; name a new folder, or empty it")
            write_meta(self._folder, Meta(self._settings, Progress()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._flush()

    def skip(self, nbest: NBestList) -> bool:
        """False: a new folder has no lists."""
        check_new(nbest, {*self._added} - self._replaced, self._format)
        return False

    def write(self, rescored: RescoredList, totals: dict[str, Any] | None = None) -> None:
        assert self._format.write_files is not None
        check_new(rescored.nbest, rescored.features.keys() - self._replaced, self._format)
        for name, text in self._format.write_files(rescored).items():
            self._waiting[name].append(text)
        self._count += 1
        self.totals = totals or {}
        if self._count % LISTS_PER_FLUSH == 0:
            self._flush()

    def finish(self, summary: dict[str, Any]) -> None:
        """Marks the folder complete."""
        self._flush()
        progress = Progress(records=self._count, complete=True, totals=self.totals)
        with os_errors_named(self._folder):
            write_meta(self._folder, Meta(self._settings, progress, summary))

    def _flush(self) -> None:
        with os_errors_named(self._folder):
            for name, texts in self._waiting.items():
                if ".." in PurePosixPath(name).parts or PurePosixPath(name).is_absolute():
                    raise OutputError(f"{name!r} would lie outside of {self._folder}; rename the score")
                path = self._folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("a", encoding="utf-8", newline="") as file:
                    file.writelines(texts)
        self._waiting.clear()


def canonical(nbest: NBestList) -> str:
    """The list as one string: two lists are the same if and only if these are equal."""
    hypotheses = [[h.number, h.text, h.features] for h in nbest.hypotheses]
    return json.dumps([nbest.id, hypotheses, nbest.references])
