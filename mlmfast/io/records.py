"""One input record: a text and where it came from, or the reason it is not one."""

from __future__ import annotations

import json
from dataclasses import dataclass

from mlmfast.errors import InputError


@dataclass(frozen=True)
class InputRecord:
    """One record of an input, in its place.

    line: 1-based physical line where the record starts. A record that cannot be read has text None and
    an `error` that carries the same line; the consumer decides whether to raise it or to go on.
    """

    line: int
    text: str | None
    id: str | None = None
    error: InputError | None = None

    @property
    def canonical(self) -> str:
        """The record as one string: two records are the same record if and only if these are equal."""
        reason = None if self.error is None else self.error.reason
        return json.dumps([self.line, self.id, self.text, reason])


def bad_record(line: int, reason: str, id: str | None = None) -> InputRecord:
    """The record at `line`, unreadable for `reason`."""
    return InputRecord(line, None, id, InputError(reason, line=line))
