"""Records from an input, streamed: one line of a text, JSON object, CSV row or FASTA entry at a time."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import BinaryIO

from mlmfast.errors import InputError, SettingsError
from mlmfast.io.fasta import fasta_records
from mlmfast.io.lines import Source, decode, open_input, physical_lines, without_line_end
from mlmfast.io.records import InputRecord, bad_record
from mlmfast.io.tables import table_records

INPUT_FORMATS = ("text", "jsonl", "csv", "tsv", "fasta")
DEFAULT_FIELD = "text"


def read_records(
    source: Source, *, input_format: str = "text", field: str | None = None
) -> Iterator[InputRecord]:
    """The records of `source`, in order: a path (".gz" through gzip), "-" or a stream of bytes.

    text: each line is a text, cut at newline bytes only, a carriage return before one removed.
    jsonl: an object per line; its `field` is the text, its "id" the id. csv, tsv: a header row, quotes as
    in RFC 4180; csv read from a file named .tsv is tsv. fasta: the first word of a header is the id, the
    lines below it, without white space, the text.

    Memory is that of one record. A bad record is yielded with its error. What leaves no records at all
    is raised at once: InputError for a source that cannot be read, a table that is empty or lacks the
    column; SettingsError for an unknown format or a field where there are none. A stream that breaks off
    raises InputError where it breaks.
    """
    records = record_parser(source, input_format, field)
    with ExitStack() as stack:
        stream = stack.enter_context(open_input(source))
        parsed = records(stream)
        return closing_after(parsed, stack.pop_all())


def record_parser(
    source: Source, input_format: str, field: str | None
) -> Callable[[BinaryIO], Iterator[InputRecord]]:
    """The parser for a format. Raises SettingsError."""
    if input_format not in INPUT_FORMATS:
        raise SettingsError(
            f"unknown input format {input_format!r}; choose one of {', '.join(INPUT_FORMATS)}"
        )
    if input_format in ("text", "fasta"):
        if field is not None:
            raise SettingsError(
                f"a field ({field!r}) was named, but {input_format} input has none; "
                "leave it out or read jsonl, csv or tsv"
            )
        return text_records if input_format == "text" else fasta_records
    name = DEFAULT_FIELD if field is None else field
    if input_format == "jsonl":
        return partial(jsonl_records, field=name)
    is_tsv = input_format == "tsv" or has_tsv_name(source)
    return partial(table_records, field=name, delimiter="\t" if is_tsv else ",")


def has_tsv_name(source: Source) -> bool:
    """Whether `source` is a path that ends with .tsv or .tsv.gz."""
    return isinstance(source, (str, Path)) and str(source).removesuffix(".gz").endswith(".tsv")


def closing_after(records: Iterator[InputRecord], stack: ExitStack) -> Iterator[InputRecord]:
    with stack:
        yield from records


def text_records(stream: BinaryIO) -> Iterator[InputRecord]:
    """One record per line; an empty line is the text "".

    >>> import io
    >>> [record.text for record in text_records(io.BytesIO(b"one\\n\\nthree"))]
    ['one', '', 'three']
    """
    for line, raw in enumerate(physical_lines(stream), 1):
        yield text_record(raw, line)


def text_record(raw: bytes, line: int) -> InputRecord:
    try:
        return InputRecord(line, decode(without_line_end(raw), line))
    except InputError as error:
        return InputRecord(line, None, error=error)


def jsonl_records(stream: BinaryIO, *, field: str) -> Iterator[InputRecord]:
    """One record per line, each a JSON object whose `field` is the text."""
    for line, raw in enumerate(physical_lines(stream), 1):
        yield json_record(raw, line, field)


def json_record(raw: bytes, line: int, field: str) -> InputRecord:
    """The record of one line of JSON; a bad one still has its id, if that can be read."""
    record = text_record(raw, line)
    content = record.text
    if content is None:
        return record
    if not content.strip():
        return bad_record(line, "a blank line, where a JSON object was expected; remove the line")
    try:
        value = json.loads(content)
    except json.JSONDecodeError as error:
        return bad_record(line, f"not JSON: {error.msg} at column {error.colno}; write one object per line")
    except (ValueError, RecursionError) as error:
        return bad_record(line, f"JSON that cannot be read: {error}; write one flat object per line")
    if not isinstance(value, dict):
        return bad_record(line, f"a JSON {json_kind(value)}, where an object was expected")

    id = value.get("id")
    id = str(id) if isinstance(id, (str, int)) and not isinstance(id, bool) else None
    if id is not None and has_lone_surrogate(id):
        return bad_record(line, "the id has a lone surrogate (half a character); correct the escape")
    if field not in value:
        return bad_record(
            line, f"no field {field!r}; there are: {names(value)}; name the field that has the text", id
        )
    text = value[field]
    if not isinstance(text, str):
        return bad_record(line, f"field {field!r} is a {json_kind(text)}, where a string was expected", id)
    if has_lone_surrogate(text):
        return bad_record(
            line, f"field {field!r} has a lone surrogate (half a character); correct the escape", id
        )
    return InputRecord(line, text, id)


def has_lone_surrogate(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def json_kind(value: object) -> str:
    """JSON's own name for the type of a parsed value."""
    if value is None:
        return "null"
    kinds: dict[type, str] = {bool: "boolean", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "number")


def names(fields: Iterable[str]) -> str:
    """The first fields' names, quoted and shortened."""
    quoted = [reprlib.repr(name) for name in fields]
    if not quoted:
        return "none"
    return ", ".join(quoted[:20]) + (", ..." if len(quoted) > 20 else "")
