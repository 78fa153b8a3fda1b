"""Minimal pairs: which of two sentences is the acceptable one (BLiMP, Warstadt et al. 2020)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlmfast.errors import InputError
from mlmfast.io.lines import decode, open_input, physical_lines, without_line_end
from mlmfast.types import JsonRecord

FIELDS = (("sentence_good", "sentence_bad"), ("good", "bad"))


@dataclass(frozen=True)
class Pairs:
    """good[i] is acceptable, bad[i] is not."""

    good: tuple[str, ...]
    bad: tuple[str, ...]


def read_pairs(path: str) -> Pairs:
    """The pairs of a file of JSON objects, one a line, with the fields `sentence_good` and `sentence_bad`, or
    `good` and `bad`. Raises InputError, placed."""
    good, bad = [], []
    with open_input(path) as stream:
        for number, raw in enumerate(physical_lines(stream), 1):
            where = f"{path}, line {number}"
            try:
                value = json.loads(decode(without_line_end(raw), number))
            except ValueError as error:
                raise InputError(f"not a JSON object ({error})", where=where) from error
            pair = next(
                (
                    [value[name] for name in names]
                    for names in FIELDS
                    if isinstance(value, dict) and all(isinstance(value.get(name), str) for name in names)
                ),
                None,
            )
            if pair is None:
                raise InputError("expected an object with sentence_good and sentence_bad", where=where)
            good.append(pair[0])
            bad.append(pair[1])
    if not good:
        raise InputError("no pairs; give a file with a JSON object a line", where=path)
    return Pairs(tuple(good), tuple(bad))


def pairs_report(teacher: NDArray[Any], student: NDArray[Any]) -> JsonRecord:
    """teacher, student: scores [2P], of the good sentences, then of the bad ones; NaN where there is none.

    accuracy: how often the good one has the higher score, of the pairs that both could score. kept: how often
    the student prefers the sentence that the teacher prefers.
    """
    differences = np.stack([np.subtract(*np.split(scores, 2)) for scores in (teacher, student)])  # [2, P]
    of_teacher, of_student = differences[:, ~np.isnan(differences).any(axis=0)]
    return {
        "pairs": differences.shape[1],
        "pairs_scored": len(of_teacher),
        "teacher_accuracy": _mean(of_teacher > 0),
        "student_accuracy": _mean(of_student > 0),
        "decisions_kept": _mean(np.sign(of_teacher) == np.sign(of_student)),
    }


def _mean(values: NDArray[Any]) -> float | None:
    return float(values.mean()) if len(values) else None
