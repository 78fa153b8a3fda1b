"""The tables of bench_student.py; in brackets what a student with head `token` is to reach at least."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from report import table
from student_measures import Rescoring, rescoring
from student_scores import Float64Array, Scores

from mlmfast.rescoring import NBestList
from mlmfast.training.distillation.agreement import agreement, list_kendall
from mlmfast.training.distillation.pairs import pairs_report
from mlmfast.types import Int64Array

SPEARMAN = ("Spearman (0.97)", "Spearman per token (0.85)")

Column = tuple[str, Scores]
"""A scorer's name and its scores; of several, the first is the teacher."""


def text_tables(columns: Sequence[Column]) -> list[str]:
    """Ranks against the teacher's, and errors by length."""
    (_, teacher), *others = columns
    found = {name: agreement(teacher.totals, scores.totals, teacher.num_tokens) for name, scores in others}
    rows = [
        [name, f"{one.spearman:.3f}", f"{one.spearman_per_token:.3f}", f"{one.pearson:.3f}"]
        for name, one in found.items()
    ]
    classes = next(iter(found.values())).errors
    lengths = [f"{error.shortest} to {error.longest} tokens ({error.num_texts})" for error in classes]
    errors = [
        [name, *(f"{error.mean:+.2f} / {error.deviation:.2f}" for error in one.errors)]
        for name, one in found.items()
    ]
    return [
        table(["scorer", *SPEARMAN, "Pearson"], rows),
        "Error per token by length, in nats: mean / root of mean square\n\n"
        + table(["scorer", *lengths], errors),
    ]


def pair_table(columns: Sequence[Column]) -> str:
    (_, teacher), *_ = columns
    rows = []
    for name, scores in columns:
        found = pairs_report(*(good_then_bad(one) for one in (teacher, scores)))
        rows.append(
            [
                name,
                f"{found['student_accuracy']:.1%}",
                f"{found['decisions_kept']:.1%}",
                *rank_correlations(teacher, scores),
            ]
        )
    return table(["scorer", "accuracy", "teacher's decisions (90%)", *SPEARMAN], rows)


def rank_correlations(teacher: Scores, scores: Scores) -> list[str]:
    """The cells of SPEARMAN."""
    found = agreement(teacher.totals, scores.totals, teacher.num_tokens)
    return [f"{found.spearman:.3f}", f"{found.spearman_per_token:.3f}"]


def good_then_bad(scores: Scores) -> Float64Array:
    """float64[2P], the totals of pairs that stand one after the other."""
    return np.concatenate([scores.totals[::2], scores.totals[1::2]])


def list_table(
    columns: Sequence[Column], offsets: Int64Array, nbest: Sequence[NBestList], foldings: int
) -> str:
    """offsets int64[G+1] of the hypotheses of each list. The share kept is of the teacher's gain in WER."""
    (_, teacher), *_ = columns
    tuned = {name: rescoring(nbest, scores.totals, foldings) for name, scores in columns}
    best = next(iter(tuned.values()))
    rows = [
        [
            name,
            f"{list_kendall(teacher.totals, scores.totals, offsets):.3f}",
            *rank_correlations(teacher, scores),
            f"{tuned[name].tuned:.2f} ± {tuned[name].deviation:.2f}",
            f"{tuned[name].gain:.2f}",
            share_kept(tuned[name], best),
            f"{tuned[name].p_value:.2f}",
            f"{tuned[name].in_sample:.2f} at {tuned[name].weight:.1f}",
        ]
        for name, scores in columns
    ]
    head = [
        "scorer",
        "Kendall in lists (0.8)",
        *SPEARMAN,
        "WER, cross-fitted",
        "gain",
        "of the teacher's (90%)",
        "p of the gain",
        "in sample, at weight",
    ]
    note = (
        f"{best.num_lists} lists with references: first pass {best.first_pass:.2f}%, oracle "
        f"{best.oracle:.2f}%; WER in percent, the mean of {foldings} foldings ± their deviation"
    )
    return f"{table(head, rows)}\n\n{note}"


def share_kept(found: Rescoring, teacher: Rescoring) -> str:
    return f"{found.gain / teacher.gain:.0%}" if teacher.gain > 0 else "the teacher gains nothing"
