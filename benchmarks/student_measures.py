"""What scores gain in rescoring, over several foldings of few lists.

Agreement with a teacher is measured as `mlmfast distill` does: mlmfast.training.distillation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from student_scores import Float64Array

from mlmfast.rescoring import NBestList, mlm_scoring
from mlmfast.rescoring.corpus import NBestCorpus, nbest_corpus
from mlmfast.rescoring.metrics import metric_named
from mlmfast.rescoring.tuning import TuningSettings, tune


@dataclass(frozen=True)
class Rescoring:
    """Word error rates in percent. tuned: of every list under a weight tuned without it, the mean over
    foldings; deviation over these, of a sample. in_sample, weight: tuned on all lists, which flatters, of the
    best. p_value: of the gain of `tuned` over the first pass, of the first folding."""

    num_lists: int
    first_pass: float
    tuned: float
    deviation: float
    in_sample: float
    weight: float
    oracle: float
    p_value: float

    @property
    def gain(self) -> float:
        return self.first_pass - self.tuned


def rescoring(nbest: Sequence[NBestList], totals: Float64Array, foldings: int) -> Rescoring:
    """totals: of the lists' hypotheses, in order. Each folding deals the lists into folds anew."""
    reports = [
        tune(
            rescoring_corpus(nbest, totals),
            metric_named("wer"),
            mlm_scoring({"mlm": 0.0}),
            TuningSettings(runs=1, seed=seed),
        )
        for seed in range(foldings)
    ]
    tuned = [report.cross_fitted for report in reports]
    best = min(reports, key=lambda report: report.runs[0].in_sample)
    return Rescoring(
        num_lists=reports[0].num_lists,
        first_pass=reports[0].first_pass,
        tuned=fmean(tuned),
        deviation=float(np.std(tuned, ddof=1)) if foldings > 1 else 0.0,
        in_sample=best.runs[0].in_sample,
        weight=float(best.weights.values[1]),
        oracle=best.oracle,
        p_value=reports[0].comparison.p_value,
    )


def rescoring_corpus(nbest: Sequence[NBestList], totals: Float64Array) -> NBestCorpus:
    """The lists that have references, with the first pass's score and ours."""
    ends = np.cumsum([len(item.hypotheses) for item in nbest])
    first_pass = [[h.features["first_pass"] for h in item.hypotheses] for item in nbest]
    return nbest_corpus(
        (
            (item, np.stack([scores, own], axis=1))
            for item, scores, own in zip(nbest, first_pass, np.split(totals, ends[:-1]), strict=True)
        ),
        metric_named("wer"),
    )
