"""What a chain starts from: which tokens of a text stay, and what the others hold before the first step."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from mlmfast.errors import SettingsError
from mlmfast.types import Int64Array

INITS = ("mask", "random", "text")
SURROGATE = re.compile("[\ud800-\udfff]")
RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")


@dataclass(frozen=True)
class StartSettings:
    """Free tokens are the masks in a text, the masks that `length` adds behind it and those at `positions`;
    where there are none of these, all of the text. What `leader` and `fixed_phrases` name is kept fixed.

    length: tokens of a start, special ones not counted: "40", or "10-20", drawn uniformly for each chain.
    positions: of tokens, counted from 1: "3-10,15". fixed_phrases: every occurrence that is made of whole
    tokens stays. leader: the first tokens that stay. init: free tokens are masked (`mask`), drawn uniformly
    from the allowed ones (`random`), or those of the text (`text`, where what is masked stays so); None:
    `text` where all of a text is free, `mask` elsewhere. words: each is put at random free positions.

    Raises SettingsError for what cannot be read.
    """

    length: str | int | None = None
    positions: str | int | None = None
    fixed_phrases: tuple[str, ...] = ()
    leader: int = 0
    init: str | None = None
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.init is not None and self.init not in INITS:
            raise SettingsError(f"unknown init {self.init!r}; expected one of {', '.join(INITS)}")
        if isinstance(self.leader, bool) or not isinstance(self.leader, int) or self.leader < 0:
            raise SettingsError(f"leader is {self.leader!r}; expected a whole number of tokens, from 0")
        for name, strings in (("fixed_phrases", self.fixed_phrases), ("words", self.words)):
            if not isinstance(strings, (tuple, list)) or not all(map(_is_content, strings)):
                raise SettingsError(
                    f"{name} is {strings!r:.60}; expected a tuple of strings, none empty, of valid Unicode"
                )
        self.length_range()
        self.free_positions()

    def length_range(self) -> tuple[int, int] | None:
        """The shortest and the longest length, None without `length`."""
        if self.length is None:
            return None
        low, high = numbers(str(self.length), f"length is {self.length!r}", "40, or 10-20")
        return low, high

    def free_positions(self) -> Int64Array:
        """int64[k], `positions` counted from 0, ascending."""
        if self.positions is None:
            return np.array([], dtype=np.int64)
        problem, parts = f"positions is {self.positions!r:.60}", str(self.positions).split(",")
        ranges = [numbers(part.strip(), problem, "such as 3-10,15") for part in parts]
        return np.unique(np.concatenate([np.arange(low - 1, high) for low, high in ranges]))


def numbers(text: str, problem: str, expected: str) -> tuple[int, int]:
    """Both ends of "4" or "3-10", counted from 1. Raises SettingsError."""
    match = RANGE.fullmatch(text)
    if match is not None:
        low = int(match[1])
        high = int(match[2] or match[1])
        if 1 <= low <= high:
            return low, high
    raise SettingsError(f"{problem}; expected whole numbers from 1 to 999999, ranges ascending: {expected}")


def _is_content(value: object) -> bool:
    """Whether it is a string that is not all white space and has no half of a surrogate pair."""
    return isinstance(value, str) and value.strip() != "" and not SURROGATE.search(value)
