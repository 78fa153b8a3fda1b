"""The scores of hypotheses in JSON and tables: which one is the total, and which there is none of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mlmfast.errors import InputError
from mlmfast.rescoring.formats.base import is_number
from mlmfast.rescoring.lists import Hypothesis

TOTALS = ("first_pass", "score")
"""The names of the decoder's total; where both are there, `score` is a feature: the total
that rescoring gave."""


def json_scores(value: dict[str, Any]) -> dict[str, float]:
    """The numbers of a JSON object by name, NaN for null."""
    return {
        name: math.nan if score is None else float(score)
        for name, score in value.items()
        if score is None or is_number(score)
    }


def with_first_pass(scores: dict[str, float]) -> dict[str, float]:
    """The features with first_pass, whichever name the total has. Raises InputError."""
    total = next((name for name in TOTALS if name in scores), None)
    if total is None:
        raise InputError("no number 'first_pass' or 'score', the decoder's total")
    return {"first_pass" if name == total else name: value for name, value in scores.items()}


def with_all_features(hypotheses: Sequence[Hypothesis]) -> tuple[Hypothesis, ...]:
    """The hypotheses of a list, NaN for each feature that only others of them have."""
    names = dict.fromkeys(name for hypothesis in hypotheses for name in hypothesis.features)
    return tuple(
        hypothesis
        if len(hypothesis.features) == len(names)
        else replace(hypothesis, features={**dict.fromkeys(names, math.nan), **hypothesis.features})
        for hypothesis in hypotheses
    )
