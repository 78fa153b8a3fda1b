"""References from files of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from mlmfast.errors import InputError
from mlmfast.io.lines import open_file
from mlmfast.rescoring.formats.base import keyed, parsed_lines

ReferenceStyle = Literal["lines", "keyed"]
References = dict[str, tuple[str, ...]]


def read_references(paths: Sequence[str | Path], style: ReferenceStyle) -> References:
    """The references of each id, one per file, in the order of the first file.

    lines: a reference per line, that of id 0 first, as translations have them. keyed: "id reference" per
    line, as Kaldi and ESPnet have them. Raises InputError for a bad line, an id that comes twice, and
    files that do not have the same ids.
    """
    files = [read_file(Path(path), style) for path in paths]
    for path, file in zip(paths[1:], files[1:], strict=True):
        different = sorted(file.keys() ^ files[0].keys())
        if different:
            raise InputError(
                f"{path} and {paths[0]} have references for different ids: {different[0]!r} is in only one"
            )
    return {id: tuple(file[id] for file in files) for id in files[0]} if files else {}


def read_file(path: Path, style: ReferenceStyle) -> dict[str, str]:
    references: dict[str, str] = {}
    with open_file(path) as stream:
        for place, parsed in parsed_lines(stream, keyed if style == "keyed" else str, file=path.name):
            if isinstance(parsed, InputError):
                raise parsed
            id, text = (str(place.line - 1), parsed) if isinstance(parsed, str) else parsed
            if id in references:
                raise place.error(f"{id!r} has a reference already; remove one")
            references[id] = text
    return references
