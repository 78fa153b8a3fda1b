"""Variants through a scorer into an output, and the figures of the run."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mlmfast.cli.progress import NoProgress, ProgressBar
from mlmfast.cli.variants_options import TableOptions
from mlmfast.errors import InputError, SettingsError
from mlmfast.io import ResumableOutput, StdoutOutput
from mlmfast.metrics import spearman
from mlmfast.proteins import RESIDUES, Variant, VariantScorer, mutated
from mlmfast.proteins.output import OutputFormat, Value, line_of, written_scores
from mlmfast.proteins.records import MUTANT_COLUMN, VariantRecord, read_variants
from mlmfast.proteins.variants import Float64Array
from mlmfast.types import JsonRecord

Output = ResumableOutput | StdoutOutput
SCORE_COLUMN = "score"


@dataclass(frozen=True)
class TableToScore:
    """columns: of the output; the last of them are score_columns, in which the mean of the models is the
    first, and an error column where bad records are skipped. mutant_column, measured_column: of the input."""

    columns: list[str]
    score_columns: list[str]
    records: Iterator[VariantRecord]
    mutant_column: str | None = None
    measured_column: str | None = None


def table_to_score(
    source: str, options: TableOptions, num_models: int, output_format: OutputFormat, *, with_errors: bool
) -> TableToScore:
    """The variants of an input. Raises InputError, and SettingsError for columns of one name where the output
    cannot tell them apart."""
    table = read_variants(
        source,
        input_format=options.input_format,
        mutant_column=options.mutant_column,
        measured_column=options.score_column,
    )
    name = options.output_column or SCORE_COLUMN
    by_model = [f"{name}_{number}" for number in range(1, num_models + 1)] if num_models > 1 else []
    added = [name, *by_model, *(["error"] if with_errors else [])]
    for column in added:
        if column in table.header:
            raise SettingsError(
                f"the input has a column {column!r} already; name the scores' with --output-column, or take "
                "the column out"
            )
    columns = [*table.header, *added]
    for column in columns if output_format == "jsonl" else added:
        if columns.count(column) > 1:
            raise SettingsError(
                f"the output would have more than one column {column!r}; rename that of the input, or name "
                "the scores' with --output-column"
            )
    mutant_column = options.mutant_column or MUTANT_COLUMN
    return TableToScore(columns, [name, *by_model], table.records, mutant_column, table.measured_column)


def no_table(source: str | None, options: TableOptions) -> TableToScore:
    """The output of all substitutions, which has no input. Raises SettingsError for one."""
    for name, value in (
        ("the file of variants", source),
        ("--mutant-column", options.mutant_column),
        ("--score-column", options.score_column),
        ("--output-column", options.output_column),
    ):
        if value is not None:
            raise SettingsError(f"--all scores every substitution and reads no variants; leave out {name}")
    return TableToScore(["position", "wild_type", *RESIDUES], list(RESIDUES), iter(()))


class VariantRun:
    """scores: of each record of the output so far, the score columns, NaN for one that was skipped."""

    def __init__(self, scorer: VariantScorer, table: TableToScore, output_format: OutputFormat) -> None:
        self.scores: list[list[float]] = []
        self._scorer, self._table, self._format = scorer, table, output_format
        self._measured: list[float] = []
        self._started = time.monotonic()

    def score_records(self, out: Output, bar: ProgressBar | NoProgress, *, on_error: str) -> None:
        """Every record not yet in the output, in order. Raises InputError with the record's line."""
        self._go_on_from(out)
        waiting: deque[VariantRecord] = deque()

        def variants() -> Iterator[Variant | InputError]:
            for number, record in enumerate(self._table.records):
                self._measured.append(record.measured)
                if number < out.already_written:
                    out.skip(record.canonical)
                    bar.skip()
                    continue
                waiting.append(record)
                yield self._variant_of(record)

        columns, num_scores = self._table.columns, len(self._table.score_columns)
        skips = on_error == "skip"
        for found in self._scorer.score_or_pass(variants()):
            record = waiting.popleft()
            scores, reason = [math.nan] * num_scores, None
            if not isinstance(found, InputError):
                scores = [float(found.mean()), *found.tolist()][:num_scores]
            elif skips:
                reason = found.reason
            else:
                raise found
            cells = record.cells or ("",) * (len(columns) - num_scores - skips)
            values = [*cells, *scores, *([reason] if skips else [])]
            out.write(line_of(columns, values, self._format), record.canonical)
            self.scores.append(scores)
            bar.advance(1)

    def score_substitutions(self, out: Output, bar: ProgressBar | NoProgress) -> None:
        """All substitutions at every position not yet in the output, a record for each position."""
        self._go_on_from(out)
        sequence = self._scorer.sequence
        positions = [f"{letter}{position}" for position, letter in enumerate(sequence)]
        for position in positions[: out.already_written]:
            out.skip(position)
            bar.skip()
        row: list[float] = []
        for found in self._scorer.score_iter(self._scorer.substitutions(out.already_written)):
            row.append(float(found.mean()))
            if len(row) == len(RESIDUES):
                place = len(self.scores)
                values: list[Value] = [place + self._scorer.offset + 1, sequence[place], *row]
                out.write(line_of(self._table.columns, values, self._format), positions[place])
                self.scores.append(row)
                bar.advance(len(row))
                row = []

    def score_table(self) -> Float64Array:
        """float64[records, score columns]."""
        return np.array(self.scores, dtype=np.float64).reshape(-1, len(self._table.score_columns))

    @property
    def num_skipped(self) -> int:
        return sum(math.isnan(scores[0]) for scores in self.scores)

    def summary(self) -> JsonRecord:
        """Figures over the whole output; rows and seconds are those of this run."""
        correlations: JsonRecord = {}
        if self._table.measured_column is not None:
            measured = np.array(self._measured, dtype=np.float64)
            # An input that is shorter than its output is for `finish` to refuse.
            table = self.score_table()[: len(measured)]
            both = np.isfinite(measured) & np.isfinite(table[:, 0])
            correlations["num_measured"] = int(both.sum())
            correlations["spearman"] = {
                name: spearman(table[both, column], measured[both])
                for column, name in enumerate(self._table.score_columns)
            }
        return {
            "records": len(self.scores),
            "skipped": self.num_skipped,
            **correlations,
            "unknown_residues": [model.num_unknown for model in self._scorer.models],
            "rows_computed": sum(model.num_rows for model in self._scorer.models),
            "seconds": time.monotonic() - self._started,
        }

    def sentence(self, s: JsonRecord) -> str:
        """s: the summary."""
        said = (
            f"{s['records']:,} records ({s['skipped']:,} skipped with an error), "
            f"{s['rows_computed']:,} rows computed, {s['seconds']:.1f} s"
        )
        if any(s["unknown_residues"]):
            number = max(s["unknown_residues"])
            said += f"\nmlmfast: {number:,} residues of the wild type are unknown tokens to a model"
        for name, value in s.get("spearman", {}).items():
            shown = "not defined" if math.isnan(value) else f"{value:.4f}"
            said += (
                f"\nmlmfast: Spearman of {name} and {self._table.measured_column} over "
                f"{s['num_measured']:,} variants: {shown}"
            )
        return said

    def _go_on_from(self, out: Output) -> None:
        """Take over the scores that an output already holds."""
        if isinstance(out, ResumableOutput) and out.already_written:
            table = self._table
            self.scores = written_scores(
                out.path, table.columns, table.score_columns, self._format, out.already_written
            )

    def _variant_of(self, record: VariantRecord) -> Variant | InputError:
        if record.error is not None:
            return record.error
        try:
            variant = self._scorer.parse(record.mutant)
            check_sequence(record.mutated_sequence.strip(), mutated(self._scorer.sequence, variant))
        except InputError as error:
            return error.at(line=record.line)
        return variant


def check_sequence(given: str, expected: str) -> None:
    """Raises InputError if a record's mutated_sequence, where it has one, is not what its mutations give."""
    if not given or given == expected:
        return
    if len(given) != len(expected):
        problem = f"{len(given)} residues, where the wild type has {len(expected)}"
    else:
        place = next(i for i, (a, b) in enumerate(zip(given, expected, strict=True)) if a != b)
        problem = f"{given[place]} as its residue {place + 1}, where the mutations give {expected[place]}"
    raise InputError(f"mutated_sequence has {problem}; check the wild type and the mutations")
