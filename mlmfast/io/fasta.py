"""Records from FASTA."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from mlmfast.errors import InputError
from mlmfast.io.lines import decode, physical_lines, without_line_end
from mlmfast.io.records import InputRecord, bad_record


@dataclass
class Entry:
    """What has been read so far of the entry that starts at `line`."""

    line: int
    id: str | None = None
    problem: str | None = None
    parts: list[str] = field(default_factory=list)

    def add(self, raw: bytes, number: int) -> None:
        """Appends physical line `number`; after a problem the rest of the entry is only passed over."""
        if self.problem is not None:
            return
        try:
            self.parts.append("".join(decode(raw, number).split()))
        except InputError as error:
            self.problem = f"in the sequence, on line {number}: {error.reason}"

    def record(self) -> InputRecord:
        if self.problem is not None:
            return bad_record(self.line, self.problem, self.id)
        return InputRecord(self.line, "".join(self.parts), self.id)


def fasta_records(stream: BinaryIO) -> Iterator[InputRecord]:
    """One record per ">" header: its first word is the id, the lines up to the next header the text.

    Only white space is taken out of a sequence; blank lines and those that start with ";" are ignored.
    An entry without residues is the text ""; all data before the first header is one bad record.
    """
    entry: Entry | None = None
    for number, raw in enumerate(physical_lines(stream), 1):
        if raw.startswith(b">"):
            if entry is not None:
                yield entry.record()
            entry = start_entry(raw, number)
        elif raw.strip() and not raw.startswith(b";"):
            if entry is None:
                entry = Entry(number, problem="data before the first header; start each entry with >")
            entry.add(raw, number)
    if entry is not None:
        yield entry.record()


def start_entry(raw: bytes, line: int) -> Entry:
    """The entry of a header line."""
    try:
        header = decode(without_line_end(raw), line)
    except InputError as error:
        return Entry(line, problem=f"in the header: {error.reason}")
    if "\r" in header:
        return Entry(line, problem="a carriage return inside the header; end lines with a newline")
    words = header[1:].split(maxsplit=1)
    return Entry(line, id=words[0] if words else None)
