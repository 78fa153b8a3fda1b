"""Records from CSV and TSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from mlmfast.errors import InputError
from mlmfast.io.lines import decode, physical_lines
from mlmfast.io.records import InputRecord, bad_record

if TYPE_CHECKING:
    from _csv import Reader

# csv refuses fields over 128 KiB unless told otherwise; this is the most a C long holds everywhere.
MAX_FIELD_SIZE = 2**31 - 1

# Before Python 3.11 csv refuses NUL. surrogateescape, which carries wrong bytes, only uses U+DC80-U+DCFF.
NUL_STAND_IN = "\udc00"


def table_records(stream: BinaryIO, *, field: str, delimiter: str) -> Iterator[InputRecord]:
    """One record per row after the header; column `field` is the text, column "id" the id.

    Raises InputError for an empty table, an unreadable header or one without `field`.
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_SIZE))
    rows = csv.reader(table_lines(stream), delimiter=delimiter, strict=True)
    try:
        header = restore(next(rows), line=1)
    except StopIteration:
        raise InputError(
            f"the table is empty; it needs a header row with a column {field!r}", line=1
        ) from None
    except csv.Error as error:
        raise InputError(f"the header row is not valid CSV: {error}", line=1) from error
    if header.count(field) != 1:
        problem = "no column" if field not in header else "more than one column"
        columns = ", ".join(map(repr, header))
        raise InputError(
            f"{problem} {field!r}; the header has: {columns}; name the column that has the text", line=1
        )
    return rows_after_header(rows, header, field)


def numbered_rows(rows: Reader) -> Iterator[tuple[int, list[str] | InputError]]:
    """The remaining rows, each with the line it starts on."""
    while True:
        line = rows.line_num + 1
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            reason = f"not valid CSV: {error}; check the quotes of the row that starts here"
            yield line, InputError(reason, line=line)
        else:
            # A blank line is one empty column, which csv gives as none.
            yield line, row or [""]


def rows_after_header(rows: Reader, header: list[str], field: str) -> Iterator[InputRecord]:
    """One record per remaining row."""
    for line, row in numbered_rows(rows):
        if isinstance(row, InputError):
            yield InputRecord(line, None, error=row)
        else:
            yield row_record(row, line, header, field)


def row_record(row: list[str], line: int, header: list[str], field: str) -> InputRecord:
    try:
        row = restore(row, line)
    except InputError as error:
        return InputRecord(line, None, error=error)
    if len(row) != len(header):
        return bad_record(
            line,
            f"{len(row)} columns, but the header has {len(header)}; "
            "quote the fields that contain delimiters, or add what is missing",
        )
    id = row[header.index("id")] if "id" in header else ""
    return InputRecord(line, row[header.index(field)], id or None)


def table_lines(stream: BinaryIO) -> Iterator[str]:
    """Lines as csv can read them, whatever their bytes; `restore` undoes what was done to them."""
    for raw in physical_lines(stream):
        yield raw.decode("utf-8", "surrogateescape").replace("\0", NUL_STAND_IN)


def restore(row: list[str], line: int) -> list[str]:
    """The row's true fields. Raises InputError if one is not UTF-8."""
    try:
        "".join(row).encode("utf-8")
        return row
    except UnicodeEncodeError:
        whole = []
    for number, field in enumerate(row, 1):
        raw = field.replace(NUL_STAND_IN, "\0").encode("utf-8", "surrogateescape")
        try:
            whole.append(decode(raw, line))
        except InputError as error:
            raise InputError(f"field {number}: {error.reason}", line=line) from error
    return whole
