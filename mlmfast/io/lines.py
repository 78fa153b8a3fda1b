"""Bytes from a file, a gzip file or a stream, cut into physical lines."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO, cast

from mlmfast.errors import InputError, SettingsError

Source = str | Path | BinaryIO

# What reading may raise: the last two come from a cut-off or damaged gzip stream.
READ_ERRORS = (OSError, EOFError, zlib.error)


def is_stream(source: Source) -> bool:
    """Whether `source` can be read only once: a stream, "-", or a pipe under the name of a file."""
    if not isinstance(source, (str, os.PathLike)) or source == "-":
        return True
    path = Path(source)
    return path.exists() and not (path.is_file() or path.is_dir())


def open_input(source: Source) -> AbstractContextManager[BinaryIO]:
    """A context manager over the bytes of `source`: a path (".gz" through gzip), "-" or a binary stream.

    Only what was opened here is closed at its end. Raises InputError if the file cannot be opened or is
    not gzip, SettingsError for a text stream.
    """
    if isinstance(source, io.TextIOBase):
        raise SettingsError("the input stream gives str, but bytes are needed; open it in binary mode ('rb')")
    if not isinstance(source, (str, os.PathLike)):
        return nullcontext(source)
    if source == "-":
        if sys.stdin is None:
            raise InputError("standard input is closed; give a file")
        return nullcontext(sys.stdin.buffer)
    return open_file(Path(source))


def open_file(path: Path) -> BinaryIO:
    """The file's bytes, decompressed if its name ends with ".gz". Raises InputError."""
    try:
        if path.suffix != ".gz":
            return path.open("rb")
        stream = io.BufferedReader(cast(io.RawIOBase, gzip.open(path)))  # noqa: SIM115
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}; give a readable file or - for standard input"
        ) from error
    try:
        stream.peek(1)
    except READ_ERRORS as error:
        stream.close()
        raise InputError(
            f"cannot read {path} as gzip, as its name says it is: {error}; rename it or compress it again"
        ) from error
    return cast(BinaryIO, stream)


def physical_lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of `stream`, cut after each newline byte and nowhere else, without a UTF-8 byte order mark.

    Raises InputError where the stream breaks: how many lines are lost cannot be known.
    """
    count = 0
    try:
        for raw in stream:
            if count == 0 and raw.startswith(codecs.BOM_UTF8):
                raw = raw[len(codecs.BOM_UTF8) :]
                if not raw:
                    return
            count += 1
            yield raw
    except READ_ERRORS as error:
        raise InputError(
            f"the input breaks off here: {error}; check that the file is whole", line=count + 1
        ) from error


def without_line_end(raw: bytes) -> bytes:
    """The line without its newline and one carriage return before it."""
    return raw.removesuffix(b"\n").removesuffix(b"\r")


def decode(raw: bytes, line: int) -> str:
    """`raw` as UTF-8. Raises InputError naming the first wrong byte and its column; NUL bytes, which UTF-16
    is full of, are wrong too."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"invalid UTF-8: byte 0x{raw[error.start]:02x} at column {error.start + 1}, counted in bytes; "
            "save the input as UTF-8",
            line=line,
        ) from error
    if "\0" in text:
        raise InputError(
            f"NUL byte at column {raw.index(0) + 1}, counted in bytes, as UTF-16 has them; "
            "save the input as UTF-8",
            line=line,
        )
    return text
