"""What `tune` and `eval` found, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlmfast.rescoring.bootstrap import Comparison
from mlmfast.rescoring.evaluation import Evaluation
from mlmfast.rescoring.tuning import TuningReport


def tuning_table(report: TuningReport) -> str:
    """The metric of every choice of hypotheses, the runs, the significance, the weights."""
    in_sample = report.runs[report.best_run].in_sample
    rows = [
        ("first pass", number(report.first_pass)),
        ("tuned, cross-fitted", number(report.cross_fitted)),
        ("tuned, in sample", number(in_sample)),
        (oracle_name(report.oracle_is_exact), number(report.oracle)),
    ]
    runs = (
        f"{len(report.runs)} runs, {report.num_folds} folds: cross-fitted mean "
        f"{number(report.cross_fitted_mean)}, standard deviation {number(report.cross_fitted_deviation)}"
    )
    lines = [
        f"{report.metric} of {report.num_lists:,} lists{without_reference(report.num_without_reference)}",
        *aligned(rows),
        runs,
        significance("cross-fitted against the first pass", report.comparison),
        "weights",
        *aligned((term.name, f"{term.weight:.6g}") for term in report.weights.terms),
    ]
    return "\n".join(lines) + "\n"


def evaluation_table(evaluations: Sequence[Evaluation]) -> str:
    """The metrics one after the other."""
    return "".join(line + "\n" for found in evaluations for line in evaluation_lines(found))


def evaluation_lines(found: Evaluation) -> Iterable[str]:
    left_out = without_reference(found.num_without_reference)
    yield f"{found.metric} of {found.num_lists:,} lists, {found.num_hypotheses:,} hypotheses{left_out}"
    interval = "" if found.interval is None else f"  [{', '.join(map(number, found.interval))}]"
    rows = [("first hypotheses", number(found.best) + interval)]
    if found.comparison is not None:
        rows.append(("the other system's", number(found.comparison.value_a)))
    yield from aligned([*rows, (oracle_name(found.oracle_is_exact), number(found.oracle))])
    if found.error_counts is not None:
        counts = found.error_counts
        yield (
            f"{counts.substitutions:,} substitutions, {counts.deletions:,} deletions, "
            f"{counts.insertions:,} insertions, {counts.hits:,} right"
        )
    if found.comparison is not None:
        yield significance("gain over the other system", found.comparison)


def significance(what: str, found: Comparison) -> str:
    low, high = found.interval
    return (
        f"{what}: {found.gain:+.2f} [{low:+.2f}, {high:+.2f}], p = {found.p_value:.3g} "
        f"({found.num_resamples:,} resamples of {found.num_blocks:,} {found.unit}s)"
    )


def without_reference(count: int) -> str:
    return f" ({count:,} more have no reference)" if count else ""


def oracle_name(exact: bool) -> str:
    return "oracle" if exact else "oracle, at least"


def number(value: float) -> str:
    return f"{value:.2f}"


def aligned(rows: Iterable[tuple[str, str]]) -> list[str]:
    rows = list(rows)
    width = max(len(name) for name, _ in rows)
    return [f"  {name:<{width}}  {value}" for name, value in rows]
