"""Records of variants: tables with a row for each, as ProteinGym publishes them, or one per line."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from mlmfast.errors import InputError, SettingsError
from mlmfast.io import read_records
from mlmfast.io.lines import Source, open_input
from mlmfast.io.readers import has_tsv_name
from mlmfast.io.tables import MAX_FIELD_SIZE, numbered_rows, restore, table_lines

INPUT_FORMATS = ("csv", "tsv", "text")
MUTANT_COLUMN = "mutant"
SEQUENCE_COLUMN = "mutated_sequence"
MEASURED_COLUMN = "DMS_score"
NOT_MEASURED = ("", "na", "nan", "none", "null")
Cells = tuple[str, ...]


@dataclass(frozen=True)
class VariantRecord:
    """One row. cells: as read, one per column; none where the row could not be read. error: why not.

    mutant: the mutation string; mutated_sequence: the sequence it should give, "" where the table has none;
    measured: the fitness, NaN where there is none.
    """

    line: int
    cells: Cells
    mutant: str = ""
    mutated_sequence: str = ""
    measured: float = math.nan
    error: InputError | None = None

    @property
    def canonical(self) -> str:
        """The record as one string; see `InputRecord.canonical`."""
        return json.dumps([self.line, self.cells, None if self.error is None else self.error.reason])


@dataclass(frozen=True)
class VariantTable:
    """A header and the records below it, streamed. measured_column: where there is one."""

    header: Cells
    measured_column: str | None
    records: Iterator[VariantRecord]


def read_variants(
    source: Source,
    *,
    input_format: str = "csv",
    mutant_column: str | None = None,
    measured_column: str | None = None,
) -> VariantTable:
    """The variants of a path (".gz" through gzip), "-" or a stream of bytes.

    csv, tsv: a header row; the column `mutant_column`, by default `mutant`, has the mutation strings; a
    column `mutated_sequence`, where there is one, what they should give; `measured_column`, by default
    `DMS_score` where there is one, measurements. csv read from a file named .tsv is tsv. text: a mutation
    string per line.

    A bad record is yielded with its error. Raises InputError for a source that cannot be read or a table
    without a header or such columns, SettingsError for an unknown format or columns of text.
    """
    if input_format not in INPUT_FORMATS:
        raise SettingsError(
            f"unknown input format {input_format!r}; choose one of {', '.join(INPUT_FORMATS)}"
        )
    if input_format == "text":
        if mutant_column is not None or measured_column is not None:
            raise SettingsError("text input has no columns; leave out their names, or read csv or tsv")
        return VariantTable((MUTANT_COLUMN,), None, text_variants(source))
    mutant_column = mutant_column or MUTANT_COLUMN
    rows = table_rows(source, "\t" if input_format == "tsv" or has_tsv_name(source) else ",")
    _, header = next(rows, (1, InputError("the table is empty; it needs a header row", line=1)))
    if isinstance(header, InputError):
        raise header
    if measured_column is None and MEASURED_COLUMN in header:
        measured_column = MEASURED_COLUMN
    sequence_column = SEQUENCE_COLUMN if SEQUENCE_COLUMN in header else None
    for column in (mutant_column, sequence_column, measured_column):
        if column is not None and header.count(column) != 1:
            problem = "no column" if column not in header else "more than one column"
            raise InputError(
                f"{problem} {column!r}; the header has: {', '.join(map(repr, header))}; name the column of "
                "the mutations (--mutant-column) and that of the measurements (--score-column)",
                line=1,
            )
    records = table_variants(rows, header, mutant_column, measured_column)
    return VariantTable(header, measured_column, records)


def text_variants(source: Source) -> Iterator[VariantRecord]:
    for record in read_records(source):
        text = record.text or ""
        yield VariantRecord(record.line, (text,), text, error=record.error)


def table_rows(source: Source, delimiter: str) -> Iterator[tuple[int, Cells | InputError]]:
    """Every row, the header too, with the line it starts on; a blank line is one empty cell."""
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_SIZE))
    with open_input(source) as stream:
        rows = csv.reader(table_lines(stream), delimiter=delimiter, strict=True)
        for line, row in numbered_rows(rows):
            yield line, row if isinstance(row, InputError) else cells_or_error(row, line)


def cells_or_error(row: list[str], line: int) -> Cells | InputError:
    try:
        return tuple(restore(row, line))
    except InputError as error:
        return error


def table_variants(
    rows: Iterator[tuple[int, Cells | InputError]],
    header: Cells,
    mutant_column: str,
    measured_column: str | None,
) -> Iterator[VariantRecord]:
    """One record per remaining row."""
    for line, cells in rows:
        if isinstance(cells, InputError):
            yield VariantRecord(line, (), error=cells)
            continue
        if len(cells) != len(header):
            reason = f"{len(cells)} columns, but the header has {len(header)}"
            error = InputError(f"{reason}; quote what contains delimiters, or add what is missing", line=line)
            yield VariantRecord(line, (), error=error)
            continue
        of_column = dict(zip(header, cells, strict=True))
        measured = number_or_error("" if measured_column is None else of_column[measured_column])
        yield VariantRecord(
            line,
            cells,
            of_column[mutant_column],
            of_column.get(SEQUENCE_COLUMN, ""),
            math.nan if isinstance(measured, InputError) else measured,
            measured.at(line=line) if isinstance(measured, InputError) else None,
        )


def number_or_error(cell: str) -> float | InputError:
    """The measurement in a cell, NaN for none."""
    if cell.strip().lower() in NOT_MEASURED:
        return math.nan
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if math.isfinite(number):
        return number
    return InputError(f"the measurement is {cell!r:.40}; expected a finite number, or nothing")


def read_wild_type(source: Source) -> str:
    """The sequence of a FASTA file of one entry. Raises InputError for none, several, an unreadable one."""
    entries = list(islice(read_records(source, input_format="fasta"), 2))
    if len(entries) != 1:
        found = "no entry" if not entries else "more than one entry"
        raise InputError(f"{found}, where the wild type alone was expected", where=str(source))
    (entry,) = entries
    if entry.error is not None:
        raise InputError(entry.error.reason, where=f"{source}, line {entry.line}")
    return entry.text or ""
