"""Records through a scorer into an output, and the figures of the run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict

from mlmfast.cli.progress import NoProgress, ProgressBar
from mlmfast.errors import InputError
from mlmfast.io import InputRecord, ResumableOutput, StdoutOutput, record_lines
from mlmfast.io.writers import OutputFormat, Per
from mlmfast.metrics import CorpusTotals
from mlmfast.results import TextScore
from mlmfast.scorer import RowCounts, Scorer
from mlmfast.types import JsonRecord


class Report:
    """What a run writes per record and says at its end."""

    def __init__(self, per: Per, output_format: OutputFormat) -> None:
        self._per: Per = per
        self._format: OutputFormat = output_format
        self._started = time.monotonic()
        self.totals = CorpusTotals()
        self.counts = RowCounts()

    def go_on_from(self, running: JsonRecord) -> None:
        """Count on from what an output already holds."""
        self.totals = CorpusTotals(**running)

    def running(self) -> JsonRecord:
        return asdict(self.totals)

    def lines(self, record: InputRecord, result: TextScore) -> str:
        return record_lines(record.line, record.id, result, per=self._per, format=self._format)

    def summary(self) -> JsonRecord:
        """Figures over the whole output; rows and seconds are those of this run."""
        totals, counts = self.totals, self.counts
        return {
            "texts": totals.num_texts,
            "scored": totals.num_scored,
            "empty": totals.num_empty,
            "skipped": totals.num_errors,
            "tokens": totals.num_tokens,
            "unknown_tokens": totals.num_unknown,
            "rows_computed": counts.num_computed,
            "rows_shared": counts.num_shared,
            "score": totals.score,
            "pppl": totals.pppl,
            "word_pppl": totals.word_pppl,
            "seconds": time.monotonic() - self._started,
        }

    def sentence(self) -> str:
        s = self.summary()
        pppl = "no PPPL" if s["pppl"] is None else f"PPPL {s['pppl']:.2f}"
        if s["word_pppl"] is not None:
            pppl += f" (per word {s['word_pppl']:.2f})"
        texts = "text" if s["texts"] == 1 else "texts"
        return (
            f"{s['texts']:,} {texts} ({s['empty']:,} empty, {s['skipped']:,} skipped with an error), "
            f"{s['tokens']:,} tokens ({s['unknown_tokens']:,} unknown), {s['rows_computed']:,} rows computed "
            f"({s['rows_shared']:,} shared), {pppl}, {s['seconds']:.1f} s "
            f"({s['tokens'] / max(s['seconds'], 1e-9):,.0f} tokens/s)"
        )


def run(
    scorer: Scorer,
    records: Iterator[InputRecord],
    out: ResumableOutput | StdoutOutput,
    bar: ProgressBar | NoProgress,
    report: Report,
    *,
    on_error: str,
    options: JsonRecord,
) -> None:
    """Score every record not yet in the output, in order. Raises InputError with the record's line."""
    waiting: deque[InputRecord] = deque()
    report.go_on_from(out.totals)

    def texts() -> Iterator[str | InputError]:
        for number, record in enumerate(records):
            if number < out.already_written:
                out.skip(record.canonical)
                bar.skip()
                continue
            waiting.append(record)
            yield record.error or record.text or ""

    try:
        for result in scorer.score_iter(texts(), on_error=on_error, counts=report.counts, **options):
            record = waiting.popleft()
            report.totals.add(result)
            out.write(report.lines(record, result), record.canonical, report.running())
            bar.advance(result.num_tokens)
    except InputError as error:
        # The scorer knows the place among the texts it was given; the reader knows the line.
        raise error.at(line=waiting[0].line) if waiting and error.line is None else error from None
