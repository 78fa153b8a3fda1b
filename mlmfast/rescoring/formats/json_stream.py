"""The items of one large JSON object, a value at a time."""

from __future__ import annotations

import codecs
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO

from mlmfast.errors import InputError
from mlmfast.io.lines import READ_ERRORS

CHUNK_BYTES = 1 << 16
SPACE = " \t\r\n"
AFTER_VALUE = frozenset(SPACE + ",:}]")


class JsonObject(dict[str, Any]):
    """A JSON object that remembers which of its names came more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(name for name, _ in pairs)
        self.repeated = tuple(name for name, count in counts.items() if count > 1)


DECODER = json.JSONDecoder(object_pairs_hook=JsonObject)


def object_items(stream: BinaryIO) -> Iterator[tuple[int, str, Any]]:
    """(line, name, value) of each item of the one object in `stream`; memory is that of one item.

    Objects inside values are JsonObjects. Raises InputError where the text stops being JSON.
    """
    text = JsonText(stream)
    text.take("{")
    if text.peek() == "}":
        text.take("}")
    else:
        while True:
            text.peek()
            line = text.line
            name = text.value()
            if not isinstance(name, str):
                raise InputError(f"{name!r}, where a name in double quotes was expected", line=line)
            text.take(":")
            yield line, name, text.value()
            if text.take(",}") == "}":
                break
    if text.peek():
        raise InputError("more text after the end of the JSON object; give one object", line=text.line)


class JsonText:
    """The text of a stream with a position in it; what lies before the position is forgotten."""

    def __init__(self, stream: BinaryIO) -> None:
        self.line = 1
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at_end = False

    def peek(self) -> str:
        """The next character that is not white space, "" at the end."""
        while True:
            rest = self._text.lstrip(SPACE)
            self._forget(len(self._text) - len(rest))
            if rest or self._at_end:
                return rest[:1]
            self._more(CHUNK_BYTES)

    def take(self, expected: str) -> str:
        """Passes over the next character, which is one of `expected`. Raises InputError."""
        found = self.peek()
        if not found or found not in expected:
            wanted = " or ".join(repr(character) for character in expected)
            raise InputError(
                f"not JSON: {wanted} was expected, {repr(found) if found else 'the end of the file'} came",
                line=self.line,
            )
        self._forget(1)
        return found

    def value(self) -> Any:
        """Passes over the next JSON value and returns it. Raises InputError."""
        self.peek()
        size = CHUNK_BYTES
        while True:
            try:
                value, end = DECODER.raw_decode(self._text)
            except json.JSONDecodeError as error:
                if self._at_end:
                    raise InputError(
                        f"not JSON: {error.msg}; correct the file, or check that it is whole",
                        line=self.line + error.lineno - 1,
                    ) from error
            except (ValueError, RecursionError) as error:
                raise InputError(f"JSON that cannot be read: {error}", line=self.line) from error
            else:
                # What is read of a number may be its start: 1 or 1e of 1e5.
                if (
                    self._at_end
                    or self._text[end : end + 1] in AFTER_VALUE
                    or not isinstance(value, (int, float))
                ):
                    self._forget(end)
                    return value
            self._more(size)
            size *= 2

    def _forget(self, count: int) -> None:
        self.line += self._text.count("\n", 0, count)
        self._text = self._text[count:]

    def _more(self, size: int) -> None:
        try:
            raw = self._stream.read(size)
            self._at_end = not raw
            self._text += self._decoder.decode(raw, final=self._at_end)
        except UnicodeDecodeError as error:
            line = self.line + self._text.count("\n") + error.object[: error.start].count(b"\n")
            raise InputError(
                f"invalid UTF-8: byte 0x{error.object[error.start]:02x}; save the input as UTF-8", line=line
            ) from error
        except READ_ERRORS as error:
            raise InputError(
                f"the input breaks off here: {error}; check that the file is whole",
                line=self.line + self._text.count("\n"),
            ) from error
