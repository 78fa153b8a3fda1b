"""Figures over rescored lists."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mlmfast.rescoring.lists import RescoredList


@dataclass
class RescoringTotals:
    """num_empty_lists: lists without hypotheses; num_empty: hypotheses without text; num_without_first_pass:
    hypotheses without a first-pass score; num_errors: hypotheses that could not be scored and were skipped;
    num_changed: lists with a new best hypothesis."""

    num_lists: int = 0
    num_empty_lists: int = 0
    num_hypotheses: int = 0
    num_empty: int = 0
    num_without_first_pass: int = 0
    num_errors: int = 0
    num_changed: int = 0

    def add(self, rescored: RescoredList) -> None:
        """Counts a list, but for its errors."""
        hypotheses = rescored.nbest.hypotheses
        self.num_lists += 1
        self.num_empty_lists += not hypotheses
        self.num_hypotheses += len(hypotheses)
        self.num_empty += sum(not hypothesis.text.strip() for hypothesis in hypotheses)
        self.num_without_first_pass += sum(
            math.isnan(hypothesis.features["first_pass"]) for hypothesis in hypotheses
        )
        self.num_changed += rescored.order[:1] not in ((), (0,))
