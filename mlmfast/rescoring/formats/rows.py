"""Lists from formats that have a row per hypothesis and the id in every row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mlmfast.errors import InputError
from mlmfast.rescoring.formats.base import Item, Place, hypothesis_gaps
from mlmfast.rescoring.lists import Hypothesis, NBestList


@dataclass(frozen=True)
class Row:
    """One hypothesis, or why it is left out. number: None where its place in the file says it."""

    id: str
    text: str = ""
    features: dict[str, float] = field(default_factory=dict)
    source: object = None
    number: int | None = None
    references: tuple[str, ...] = ()
    error: InputError | None = None


def lists_of(rows: Iterable[tuple[Place, Row | InputError]], source: object = None) -> Iterator[Item]:
    """A list for each run of rows with one id, by number; a list whose rows are all left out is empty.

    The errors of a list come before it. A row that has not even an id counts for the list before it.
    """
    current: list[tuple[Place, Row]] = []
    for place, row in rows:
        if isinstance(row, InputError):
            yield row
            continue
        if current and current[0][1].id != row.id:
            yield from list_of(current, source)
            current = []
        current.append((place, row))
    if current:
        yield from list_of(current, source)


def list_of(rows: list[tuple[Place, Row]], source: object) -> Iterator[Item]:
    hypotheses: dict[int, Hypothesis] = {}
    for rank, (place, row) in enumerate(rows, 1):
        number = rank if row.number is None else row.number
        if row.error is not None:
            yield place.error(row.error.reason)
        elif number in hypotheses:
            yield place.error(f"list {row.id!r} has hypothesis {number} twice; renumber")
        else:
            hypotheses[number] = Hypothesis(number, row.text, row.features, row.source)
    first_place, first = rows[0]
    ordered = tuple(hypotheses[number] for number in sorted(hypotheses))
    yield NBestList(first.id, ordered, first.references, first_place.line, source, hypothesis_gaps(ordered))
