"""N-best lists: whether a student orders hypotheses as its teacher does, and the error rates of both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlmfast.rescoring.corpus import nbest_corpus
from mlmfast.rescoring.features import LanguageModelScores, feature_matrix
from mlmfast.rescoring.lists import NBestList
from mlmfast.rescoring.metrics import metric_named
from mlmfast.rescoring.text_preparation import TextPreparation
from mlmfast.rescoring.tuning import TuningSettings, tune
from mlmfast.rescoring.weights import FIRST_PASS, Term, Weights
from mlmfast.scheduling.csr import offsets_of
from mlmfast.training.distillation.agreement import list_kendall
from mlmfast.types import Int64Array, JsonRecord

WEIGHTS = Weights((FIRST_PASS, Term("lm", "mlm", 0.0)))
"""Where tuning starts: the first pass alone."""


@dataclass(frozen=True)
class NBestLists:
    """lists, and the texts of all their hypotheses as they are scored, white space made single spaces."""

    lists: tuple[NBestList, ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, lists: Iterable[NBestList]) -> NBestLists:
        kept = tuple(lists)
        prepare = TextPreparation()
        return cls(kept, tuple(prepare(h.text) for nbest in kept for h in nbest.hypotheses))

    @property
    def offsets(self) -> Int64Array:
        """int64[L+1], where the hypotheses of each list begin and end."""
        return offsets_of(np.array([len(nbest.hypotheses) for nbest in self.lists], dtype=np.int64))

    @property
    def has_references(self) -> bool:
        return any(nbest.references for nbest in self.lists)


def lists_report(
    lists: NBestLists, teacher: NDArray[Any], student: NDArray[Any], num_tokens: Int64Array, *, seed: int
) -> JsonRecord:
    """teacher, student: scores [H] of all hypotheses in nats, NaN where there is none; num_tokens int64[H].

    wer, if there are references: of the first pass, and with the teacher's and the student's scores, whose
    weights are tuned by cross-fitting; gain_kept: the student's gain over the first pass by the teacher's.
    Raises InputError for lists that cannot be tuned on, MissingExtraError without the `nbest` extra.
    """
    report: JsonRecord = {
        "lists": len(lists.lists),
        "hypotheses": len(lists.texts),
        "kendall": list_kendall(teacher, student, lists.offsets),
        "wer": None,
    }
    if lists.has_references:
        first_pass, with_teacher = _error_rates(lists, teacher, num_tokens, seed)
        _, with_student = _error_rates(lists, student, num_tokens, seed)
        gain = first_pass - with_teacher
        report["wer"] = {
            "first_pass": first_pass,
            "teacher": with_teacher,
            "student": with_student,
            "gain_kept": (first_pass - with_student) / gain if gain > 0 else None,
        }
    return report


def _error_rates(
    lists: NBestLists, scores: NDArray[Any], num_tokens: Int64Array, seed: int
) -> tuple[float, float]:
    """Word error rates of the first pass and of lists rescored with weights tuned without them."""
    metric = metric_named("wer")
    cuts = lists.offsets[1:-1]
    parts = zip(lists.lists, np.split(scores, cuts), np.split(num_tokens, cuts), strict=True)
    matrices = (
        (nbest, feature_matrix(nbest.hypotheses, WEIGHTS.terms, {"mlm": LanguageModelScores(part, counts)}))
        for nbest, part, counts in parts
    )
    found = tune(nbest_corpus(matrices, metric), metric, WEIGHTS, TuningSettings(seed=seed))
    return found.first_pass, found.cross_fitted_mean
