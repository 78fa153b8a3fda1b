"""Rows of an output: its header, its records as csv, tsv or jsonl, and its scores read back."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

from mlmfast.errors import OutputError
from mlmfast.io.json_text import to_json
from mlmfast.io.writers import tsv_row

OutputFormat = Literal["csv", "tsv", "jsonl"]
Value = str | int | float | None


def header_of(columns: Sequence[str], format: OutputFormat) -> str:
    """What an output starts with; nothing for jsonl."""
    return "" if format == "jsonl" else line_of(columns, columns, format)


def line_of(columns: Sequence[str], values: Sequence[Value], format: OutputFormat) -> str:
    """One record, line end included. Numbers are written in full; None and NaN are empty, in jsonl null.

    csv is quoted as in RFC 4180; in tsv tab, newline, carriage return and backslash are \\t, \\n, \\r, \\\\.
    """
    if format == "jsonl":
        return to_json(dict(zip(columns, values, strict=True))) + "\n"
    if format == "tsv":
        return tsv_row(values)
    cells = io.StringIO()
    missing = [value is None or (isinstance(value, float) and math.isnan(value)) for value in values]
    # Before Python 3.13 csv quotes a line end in a cell only if it is among those it writes.
    csv.writer(cells, lineterminator="\r\n").writerow(
        ["" if is_missing else value for value, is_missing in zip(values, missing, strict=True)]
    )
    return cells.getvalue().removesuffix("\r\n") + "\n"


def written_scores(
    path: Path, columns: Sequence[str], scores: Sequence[str], format: OutputFormat, num_records: int
) -> list[list[float]]:
    """The columns `scores` of the first records of an output, NaN where a record has none.

    Raises OutputError for what is not an output with these columns.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            found = [
                [math.nan if record[name] in ("", None) else float(record[name]) for name in scores]
                for record in islice(_records(file, columns, format), num_records)
            ]
    except (OSError, ValueError, LookupError, csv.Error) as error:
        raise OutputError(f"{path} cannot be read back: {error}; delete it to start over") from error
    if len(found) != num_records:
        raise OutputError(f"{path} has {len(found)} records, not {num_records}; delete it to start over")
    return found


def _records(file: io.TextIOBase, columns: Sequence[str], format: OutputFormat) -> Iterator[dict[str, str]]:
    if format == "jsonl":
        yield from map(json.loads, file)
        return
    rows = csv.reader(file) if format == "csv" else (line.rstrip("\n").split("\t") for line in file)
    next(rows, None)
    for row in rows:
        yield dict(zip(columns, row, strict=True))
