"""N-best lists as every reader gives them and every writer takes them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from mlmfast.errors import SettingsError


@dataclass(frozen=True)
class Hypothesis:
    """One hypothesis of a list.

    number: its rank among the first pass's hypotheses, from 1, as the file numbers it. text: as in the
    file, words joined by spaces. features: named first-pass scores in natural logs, larger is better, sums
    over the hypothesis, NaN where the file says that there is none; "first_pass", the decoder's total, is
    always there. Where the decoder ranked by a length-normalised total, "first_pass_normalized" is that
    total, the only feature that is not a sum.
    source: what its writer needs to write it back.
    """

    number: int
    text: str
    features: dict[str, float]
    source: object = None


@dataclass(frozen=True)
class NBestList:
    """The hypotheses of one utterance or sentence, best of the first pass first; there may be none.

    references: () where none is known. line: where the list starts in its file, from 1. source: what its
    writer needs beside the hypotheses.
    flags: `missing` (it has a reference, but the decoder gave no list), `gap:N` (N ids are missing before
    it), `hypothesis_gap:N` (N hypothesis numbers are missing in it), `unordered` (the numbers do not follow
    the decoder's total, so that this may not be the total the decoder ranked by).
    """

    id: str
    hypotheses: tuple[Hypothesis, ...]
    references: tuple[str, ...] = ()
    line: int | None = None
    source: object = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class RescoredList:
    """A list with what rescoring found.

    order: indices into the hypotheses, best first. scores: the new total of each hypothesis, in the list's
    own order, None where there is none. features: the added scores by name, each in the list's own order.
    Raises SettingsError if the order is not a permutation or a score is missing or too many.
    """

    nbest: NBestList
    order: tuple[int, ...]
    scores: tuple[float | None, ...]
    features: dict[str, tuple[float | None, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = len(self.nbest.hypotheses)
        if sorted(self.order) != list(range(count)):
            raise SettingsError(
                f"list {self.nbest.id!r} has {count} hypotheses, which {self.order} does not order"
            )
        for name, values in {"scores": self.scores, **self.features}.items():
            if len(values) != count:
                raise SettingsError(
                    f"list {self.nbest.id!r} has {count} hypotheses, but {name!r} has {len(values)} values"
                )

    def added(self, index: int) -> dict[str, float | None]:
        """The added scores of the hypothesis at `index`."""
        return {name: values[index] for name, values in self.features.items()}


def first_pass_order(nbest: NBestList) -> RescoredList:
    """The list as the first pass left it, for writing it in another format."""
    totals = [hypothesis.features["first_pass"] for hypothesis in nbest.hypotheses]
    return RescoredList(
        nbest, tuple(range(len(totals))), tuple(None if math.isnan(total) else total for total in totals)
    )
