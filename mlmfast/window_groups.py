"""How many texts make a window, and so how soon results come and how much memory they take; and how any
stream is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add, ge
from typing import TypeVar

from mlmfast.scheduling import Masking

Item = TypeVar("Item")
WINDOW_TEXTS = 512
WINDOW_ROW_TOKENS = 1 << 17
"""What bounds a window: texts, and tokens of their rows as estimated."""
CHARACTERS_PER_TOKEN = 4


def _row_tokens(text: object, masking: Masking) -> int:
    """About how many tokens a text's rows have together."""
    length = len(text) // CHARACTERS_PER_TOKEN + 1 if isinstance(text, str) else 1
    rows = {"none": 1, "student": 1, "causal": 1, "stride": masking.stride}.get(masking.kind, length)
    return length * min(rows, length)


def windows_of(groups: Iterable[Sequence[object]], masking: Masking) -> Iterator[list[Sequence[object]]]:
    """Consecutive groups, as many as make a window; an empty one counts as a text."""

    def sizes_of(group: Sequence[object]) -> tuple[int, int]:
        return max(len(group), 1), sum(_row_tokens(text, masking) for text in group)

    return consecutive(groups, (WINDOW_TEXTS, WINDOW_ROW_TOKENS), sizes_of)


def consecutive(
    items: Iterable[Item],
    limits: tuple[int, ...],
    sizes_of: Callable[[Item], tuple[int, ...]] = lambda item: (1,),
) -> Iterator[list[Item]]:
    """Lists of consecutive items, each ended by the item with which a sum of sizes reaches its limit. What
    came before a failure of the source comes out before it."""
    found: list[Item] = []
    totals = [0] * len(limits)
    try:
        for item in items:
            found.append(item)
            totals = list(map(add, totals, sizes_of(item)))
            if any(map(ge, totals, limits)):
                yield found
                found, totals = [], [0] * len(limits)
    except Exception:
        if found:
            yield found
        raise
    if found:
        yield found
