"""Plain text as lists of one hypothesis: a sentence per line, or "id sentence" lines. Never guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mlmfast.errors import InputError
from mlmfast.io.lines import Source, open_input
from mlmfast.rescoring.formats.base import Format, Item, ReadOptions, keyed, parsed_lines
from mlmfast.rescoring.lists import Hypothesis, NBestList


def read_text(source: Source, options: ReadOptions) -> Iterator[Item]:
    """The list of each line, ids from 0."""
    return read_lines(source, str)


def read_keyed(source: Source, options: ReadOptions) -> Iterator[Item]:
    """The list of each line, whose first word is the id; the text after it may be empty."""
    return read_lines(source, keyed)


def read_lines(source: Source, parse: Callable[[str], str | tuple[str, str]]) -> Iterator[Item]:
    with open_input(source) as stream:
        for place, parsed in parsed_lines(stream, parse):
            if isinstance(parsed, InputError):
                yield parsed
                continue
            id, text = (str(place.line - 1), parsed) if isinstance(parsed, str) else parsed
            yield NBestList(id, (Hypothesis(1, text, {"first_pass": 0.0}),), line=place.line)


TEXT = Format("text", read_text, counted_ids=True, written_as="jsonl")
KEYED = Format("keyed", read_keyed, written_as="jsonl")
