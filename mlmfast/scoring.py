"""Groups of texts through windows and workers to their results, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from mlmfast.errors import SettingsError
from mlmfast.plans import ScoringPlan
from mlmfast.results import TextScore
from mlmfast.tokenization import Tokenizer
from mlmfast.window_groups import windows_of
from mlmfast.windows import Window, placed
from mlmfast.workers import Workers

ON_ERROR = ("raise", "skip")


@dataclass
class RowCounts:
    """Rows the texts asked for, and rows computed after identical ones were shared."""

    num_rows: int = 0
    num_computed: int = 0

    @property
    def num_shared(self) -> int:
        return self.num_rows - self.num_computed


def check_on_error(on_error: str) -> None:
    if on_error not in ON_ERROR:
        raise SettingsError(f"unknown on_error {on_error!r}; expected one of {', '.join(ON_ERROR)}")


def results_of(
    groups: Iterable[Sequence[object]],
    plan: ScoringPlan,
    tokenizer: Tokenizer,
    workers: Workers,
    on_error: str,
    counts: RowCounts,
) -> Iterator[list[TextScore]]:
    """The results of each group's texts; on_error and counts as for `Scorer.score_iter`.

    Raises InputError for a text, naming its index among all."""
    sizes: deque[list[int]] = deque()

    def windows() -> Iterator[Window]:
        for window in windows_of(groups, plan.masking):
            sizes.append([len(group) for group in window])
            yield Window([text for group in window for text in group], plan, tokenizer)

    first = 0
    for window in workers.run(windows(), plan.outputs):
        counts.num_rows += window.num_rows
        counts.num_computed += window.num_computed
        results = _checked(window, plan, first, on_error)
        for size in sizes.popleft():
            yield list(islice(results, size))
            first += size


def _checked(window: Window, plan: ScoringPlan, first: int, on_error: str) -> Iterator[TextScore]:
    """The results of a window whose first text is text `first` of the call; errors raised or put in them."""
    for index, result in enumerate(window.results()):
        if isinstance(result, TextScore):
            yield result
        elif on_error == "raise":
            raise placed(result, first + index)
        else:
            yield TextScore(
                window.text(index),
                plan.masking.name,
                score=None,
                error=result.reason,
                student_head=plan.student_head,
            )
