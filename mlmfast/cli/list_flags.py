"""What readers flag in lists, counted and said."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

from mlmfast.rescoring.lists import NBestList

logger = logging.getLogger(__name__)

NUM_NAMED = 3
MEANINGS = {
    "missing": "{} references have no list and count as empty",
    "gap": "{} lists come after missing ids",
    "hypothesis_gap": "{} lists lack hypotheses that the numbers count",
    "unordered": "{} lists are not in the order of the totals, which may not be what the decoder ranked by",
}


@dataclass
class ListFlags:
    """num_lists: with each flag; first: the ids of the first of them, with the number that is missing."""

    num_lists: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[str]] = field(default_factory=dict)

    def add(self, nbest: NBestList) -> None:
        for flag in nbest.flags:
            name, _, num_missing = flag.partition(":")
            self.num_lists[name] += 1
            first = self.first.setdefault(name, [])
            if len(first) < NUM_NAMED:
                first.append(f"{nbest.id!r} ({num_missing} missing)" if num_missing else repr(nbest.id))

    def log(self) -> None:
        """A warning for each flag."""
        for name, count in self.num_lists.items():
            more = ", ..." if count > NUM_NAMED else ""
            logger.warning("%s: %s%s", MEANINGS[name].format(count), ", ".join(self.first[name]), more)
