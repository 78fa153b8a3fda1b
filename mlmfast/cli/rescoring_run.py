"""Lists through a rescorer into an output, and the figures of the run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict

import numpy as np

from mlmfast.cli.progress import NoProgress, ProgressBar
from mlmfast.cli.rescoring import ListInput
from mlmfast.reports.rescored import RescoredLists
from mlmfast.rescoring.cascade import Cascade, CascadeCounts, rescore_in_cascade
from mlmfast.rescoring.formats.writing import ListsFile, ListsFolder
from mlmfast.rescoring.lazy_rescoring import LazyCounts, rescore_lazily
from mlmfast.rescoring.lists import NBestList, RescoredList
from mlmfast.rescoring.rescorer import Rescorer
from mlmfast.rescoring.totals import RescoringTotals
from mlmfast.types import JsonRecord


class RescoringRun:
    """Lists through a rescorer into an output, and the figures of it. kept: what keeps them for a report."""

    def __init__(
        self,
        rescorer: Rescorer,
        lists: ListInput,
        *,
        lazy: bool,
        cascade: Cascade | None = None,
        kept: RescoredLists | None = None,
    ) -> None:
        self._rescorer = rescorer
        self._lists = lists
        self._kept = kept
        self._lazy_counts = LazyCounts() if lazy else None
        self._cascade = cascade
        self._cascade_counts = CascadeCounts()
        self._started = time.monotonic()
        self.totals = RescoringTotals()

    def through(self, out: ListsFile | ListsFolder, bar: ProgressBar | NoProgress) -> None:
        """Rescore every list that the output does not have yet, in order."""
        self.totals = RescoringTotals(**out.totals)
        errors_before = self.totals.num_errors

        def new_lists() -> Iterator[NBestList]:
            for nbest in self._lists:
                if out.skip(nbest):
                    bar.skip(len(nbest.hypotheses))
                else:
                    yield nbest

        for rescored in self._rescored(new_lists()):
            self.totals.add(rescored)
            self.totals.num_errors = errors_before + self._rescorer.counts.num_errors
            out.write(rescored, asdict(self.totals))
            count = len(rescored.nbest.hypotheses)
            bar.advance(count, count)

    def _rescored(self, lists: Iterator[NBestList]) -> Iterator[RescoredList]:
        rescorer, kept = self._rescorer, self._kept
        saving = self._saving_rows(lists)
        if saving is not None:
            for rescored in saving:
                if kept is not None:
                    kept.add(rescored, np.zeros((len(rescored.order), 0)))
                yield rescored
            return
        for scored in rescorer.score_lists(lists):
            rescored = rescorer.ranked(scored)
            if kept is not None:
                kept.add(rescored, rescorer.features(scored))
            yield rescored

    def _saving_rows(self, lists: Iterator[NBestList]) -> Iterator[RescoredList] | None:
        """The lists as rescored lazily or in a cascade; None where all hypotheses are scored in full."""
        if self._lazy_counts is not None:
            return rescore_lazily(self._rescorer, lists, self._lazy_counts)
        if self._cascade is not None:
            return rescore_in_cascade(self._rescorer, self._cascade, lists, self._cascade_counts)
        return None

    def summary(self) -> JsonRecord:
        """Figures over the whole output; rows, texts and seconds are those of this run."""
        counts = self._rescorer.counts
        lazy = self._lazy_counts
        figures: JsonRecord = {
            **asdict(self.totals),
            "num_unreadable": self._lists.num_unreadable,
            "flags": dict(self._lists.flags.num_lists),
            "texts": counts.num_texts,
            "texts_repeated": counts.num_repeated,
            "rows_asked": counts.num_rows,
            "rows_computed": counts.num_computed,
            "seconds": time.monotonic() - self._started,
        }
        if lazy is not None:
            figures["lazy"] = asdict(lazy)
        if self._cascade is not None:
            figures["cascade"] = asdict(self._cascade_counts)
        return figures

    def sentence(self) -> str:
        totals, counts, lazy = self.totals, self._rescorer.counts, self._lazy_counts
        parts = [f"{totals.num_empty:,} empty", f"{totals.num_errors:,} skipped with an error"]
        if totals.num_without_first_pass:
            parts.append(f"{totals.num_without_first_pass:,} without a first-pass score")
        without = f" ({totals.num_empty_lists:,} without hypotheses)" if totals.num_empty_lists else ""
        said = (
            f"{totals.num_lists:,} lists{without}, {totals.num_hypotheses:,} hypotheses ({', '.join(parts)}"
            f"{self._lists.unreadable_said()}), a new best in {totals.num_changed:,}; "
        )
        if counts.num_texts:
            said += (
                f"{counts.num_rows:,} rows, {counts.num_computed:,} of them computed "
                f"({counts.num_repeated:,} texts repeated); "
            )
        if lazy is not None:
            share = f"{lazy.num_computed / lazy.num_full:.1%}" if lazy.num_full else "none"
            said += (
                f"lazily {lazy.num_computed:,} rows computed, {share} of the {lazy.num_full:,} of full "
                f"scoring ({lazy.num_rows:,} unshared), {lazy.num_fallbacks:,} lists in full; "
            )
        if self._cascade is not None:
            counted = self._cascade_counts
            said += (
                f"a student ordered them in {counted.student.num_computed:,} rows, {counted.num_exact:,} of "
                f"{counted.num_hypotheses:,} hypotheses with exact scores; "
            )
        return f"{said}{time.monotonic() - self._started:.1f} s"
