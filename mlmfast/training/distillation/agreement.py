"""How well a student's scores agree with its teacher's. S texts."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlmfast.metrics import pearson, spearman
from mlmfast.types import Int64Array, JsonRecord

LENGTHS = (1, 6, 11, 21, 41, 81)
"""Where each class of lengths begins, in tokens."""

Values = NDArray[Any]


@dataclass(frozen=True)
class LengthError:
    """Texts of `shortest` to `longest` scored tokens. mean, deviation: of (student - teacher) / num_tokens,
    in nats per token; deviation is the root of its mean square."""

    shortest: int
    longest: int
    num_texts: int
    mean: float
    deviation: float


@dataclass(frozen=True)
class Agreement:
    """Correlations of the scores: Pearson's, Spearman's, and Spearman's of the scores per token. NaN where
    either side is constant."""

    num_texts: int
    pearson: float
    spearman: float
    spearman_per_token: float
    errors: tuple[LengthError, ...]

    @property
    def rank_correlation(self) -> float:
        """The mean of both Spearman correlations: the first alone hardly moves where lengths differ much,
        since any sum over tokens orders texts by length."""
        return (self.spearman + self.spearman_per_token) / 2

    def record(self) -> JsonRecord:
        return {"rank_correlation": self.rank_correlation, **asdict(self)}


def agreement(teacher: Values, student: Values, num_tokens: Int64Array) -> Agreement:
    """teacher, student: scores of S texts, [S], in nats; num_tokens: int64[S], at least 1."""
    teacher, student = teacher.astype(np.float64), student.astype(np.float64)
    return Agreement(
        num_texts=len(teacher),
        pearson=pearson(teacher, student),
        spearman=spearman(teacher, student),
        spearman_per_token=spearman(teacher / num_tokens, student / num_tokens),
        errors=errors_by_length((student - teacher) / num_tokens, num_tokens),
    )


def errors_by_length(errors: Values, num_tokens: Int64Array) -> tuple[LengthError, ...]:
    """errors [S], in nats per token. Classes of lengths without a text are left out."""
    found = []
    class_of = np.searchsorted(LENGTHS, num_tokens, side="right")
    for number in np.unique(class_of):
        of_class = class_of == number
        lengths, values = num_tokens[of_class], errors[of_class]
        found.append(
            LengthError(
                shortest=int(lengths.min()),
                longest=int(lengths.max()),
                num_texts=len(values),
                mean=float(values.mean()),
                deviation=float(np.sqrt(np.square(values).mean())),
            )
        )
    return tuple(found)


def kendall(first: Values, second: Values) -> float:
    """Kendall's tau-b (1945, with his correction for ties); NaN where either side is constant."""
    signs = [np.sign(values[:, None] - values[None, :]) for values in (first, second)]
    pairs = [float(np.abs(sign).sum()) for sign in signs]
    product = math.sqrt(pairs[0] * pairs[1])
    return float((signs[0] * signs[1]).sum()) / product if product > 0 else math.nan


def list_kendall(teacher: Values, student: Values, offsets: Int64Array) -> float:
    """The mean over lists of tau-b within them; lists on which it is not defined are left out, NaN if all.

    teacher, student: scores [H] of all hypotheses, NaN for one without a score, which is left out.
    offsets: int64[L+1], where lists begin and end.
    """
    found = []
    for start, end in pairwise(offsets):
        pair = np.stack([teacher[start:end], student[start:end]])
        found.append(kendall(*pair[:, ~np.isnan(pair).any(axis=0)]))
    return float(np.nanmean(found)) if not np.isnan(found).all() else math.nan
