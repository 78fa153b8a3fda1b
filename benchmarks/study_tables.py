"""The tables of the study of scoring rules, from its runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from machine import banner

Record = dict[str, Any]

CURVES = {"log_loss": "log-loss", "brier": "Brier", "accuracy": "accuracy"}
COLUMNS = {
    "log_loss": "log-loss",
    "brier": "Brier",
    "calibration_error": "ECE",
    "accuracy": "accuracy",
    "pppl": "PPPL",
    "tail_mean": "5% tail, mean",
    "tail_share": "its share of PLL",
    "percentile_1": "1st percentile",
    "blimp_accuracy": "BLiMP",
    "wer": "WER",
}
DIGITS = {"pppl": 1, "tail_mean": 2, "percentile_1": 2, "wer": 1, "brier": 4, "calibration_error": 4}
"""3 for the others."""
FIGURES = {
    "scratch": "From scratch",
    "finetuned": "Fine-tuned after log training",
    "smoothed": "Fine-tuned with smoothing",
}


def page(records: Sequence[Record]) -> str:
    """All tables, as markdown."""
    minutes = sum(record["cpu_seconds"] for record in records) / 60
    machine = "\n".join(line for line in banner().splitlines() if "load average" not in line)
    parts = [
        "# Scoring rules: the runs of `benchmarks/study_scoring_rules.py`",
        f"{machine}\n- {len(records)} runs, {minutes:.1f} minutes of CPU time",
        "Means (smallest to largest) over the seeds, whose number is in parentheses behind each rule.",
    ]
    for figure, title in FIGURES.items():
        of_figure = [record for record in records if record["figure"] == figure]
        trained = [record for record in of_figure if "steps" in record["settings"]]
        if trained:
            make = curve_tables if figure == "scratch" else measure_table
            parts.append(f"## {title} (`{figure}`)\n\n{how(trained[-1])}\n\n{make(of_figure)}")
    return "\n\n".join(parts) + "\n"


def how(record: Record) -> str:
    """How a figure's runs were made; the rest is in their lines of the jsonl."""
    made = record["settings"]
    schedule = made["schedule"]
    said = (
        f"{made['steps']} steps of {made['batch_size']} rows of {made['block_tokens']} tokens, "
        f"{made['precision']}, learning rate {schedule['learning_rate']} ({schedule['schedule']}, warm-up "
        f"{schedule['warmup_steps']})"
    )
    if "measures" not in record:
        return f"{said}; {record['evaluations'][0]['num_targets']:,} held-out targets."
    found, measured = record["measures"], made["measured"]
    return (
        f"{said}. Measured: {found['num_targets']:,} held-out targets masked together; "
        f"{found['num_tokens']:,} tokens masked one at a time (PPPL and tail, {measured['precision']}); "
        f"{found['num_pairs']} pairs of BLiMP; {found['num_lists']} lists of {measured['hypotheses']} "
        f"hypotheses, first pass {found['first_pass_wer']:.1f}, WER with a weight cross-fitted over 5 folds."
    )


def curve_tables(records: Sequence[Record]) -> str:
    """A table per held-out figure: a line per step, a column per arm, and what is measured without steps."""
    curves = [record for record in records if "evaluations" in record]
    arms = list(dict.fromkeys(record["arm"] for record in curves))
    steps = [evaluation["step"] for evaluation in curves[0]["evaluations"]]
    tables = []
    for column, title in CURVES.items():
        lines = [f"| {title} at step | {' | '.join(named(arm, records) for arm in arms)} |"]
        lines.append("|---:|" + "---:|" * len(arms))
        for step in steps:
            cells = [
                spread(
                    [
                        evaluation[column]
                        for record in curves
                        if record["arm"] == arm
                        for evaluation in record["evaluations"]
                        if evaluation["step"] == step
                    ],
                    column,
                )
                for arm in arms
            ]
            lines.append(f"| {step} | {' | '.join(cells)} |")
        lines += [
            f"\n{record['arm']} alone: {spread([record['measures'][column]], column)}"
            for record in records
            if "measures" in record
        ]
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def measure_table(records: Sequence[Record]) -> str:
    """A line per arm, a column per measure."""
    lines = [f"| rule | {' | '.join(COLUMNS.values())} |", "|---|" + "---:|" * len(COLUMNS)]
    for arm in dict.fromkeys(record["arm"] for record in records):
        found = [record["measures"] for record in records if record["arm"] == arm]
        cells = [spread([measured[column] for measured in found], column) for column in COLUMNS]
        lines.append(f"| {named(arm, records)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def named(arm: str, records: Sequence[Record]) -> str:
    """The arm and how many seeds it has."""
    return f"{arm} ({sum(record['arm'] == arm for record in records)})"


def spread(values: Sequence[float], column: str) -> str:
    """The mean, and of several values their smallest and largest."""
    digits = DIGITS.get(column, 3)
    mean = f"{sum(values) / len(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ({min(values):.{digits}f} to {max(values):.{digits}f})"
