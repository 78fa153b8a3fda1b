"""A language model's scores for n-best lists: texts prepared, repeated ones scored once."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from mlmfast.errors import SettingsError
from mlmfast.rescoring.text_preparation import TextPreparation
from mlmfast.results import TextScore
from mlmfast.scorer import RowCounts, Scorer

T = TypeVar("T")

REMEMBERED_TEXTS = 1 << 16


@dataclass
class SharingCounts(RowCounts):
    """Rows; texts asked for; those repeated, found among those scored before, so that no row was needed;
    errors, texts that could not be scored."""

    num_texts: int = 0
    num_repeated: int = 0
    num_errors: int = 0


class ScoredText(NamedTuple):
    """What is kept of a text's result. score in nats, None for an empty text or one with an `error`."""

    score: float | None
    num_tokens: int
    num_rows: int
    error: str | None


class TextMemory:
    """The results of the texts used last, at most `capacity`; for any number of threads."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._results: OrderedDict[str, ScoredText] = OrderedDict()
        self._lock = Lock()

    def get(self, text: str) -> ScoredText | None:
        with self._lock:
            result = self._results.get(text)
            if result is not None:
                self._results.move_to_end(text)
            return result

    def put(self, text: str, result: ScoredText) -> None:
        with self._lock:
            self._results[text] = result
            self._results.move_to_end(text)
            while len(self._results) > self._capacity:
                self._results.popitem(last=False)


class TextsUnderWay:
    """The texts of the groups that are being scored, and their results as far as they are known."""

    def __init__(self, memory: TextMemory) -> None:
        self._memory = memory
        self._num_groups: Counter[str] = Counter()
        self._results: dict[str, ScoredText] = {}

    def begin(self, texts: Iterable[str]) -> list[str]:
        """Those of a new group's distinct texts that are to be scored."""
        new = []
        for text in dict.fromkeys(texts):
            if not self._num_groups[text]:
                result = self._memory.get(text)
                if result is None:
                    new.append(text)
                else:
                    self._results[text] = result
            self._num_groups[text] += 1
        return new

    def found(self, text: str, result: ScoredText) -> None:
        self._results[text] = result
        self._memory.put(text, result)

    def end(self, texts: Iterable[str]) -> dict[str, ScoredText]:
        """The results of a group, whose own texts and those of all groups before it are found."""
        results = {}
        for text in dict.fromkeys(texts):
            results[text] = self._results[text]
            self._num_groups[text] -= 1
            if not self._num_groups[text]:
                del self._num_groups[text], self._results[text]
        return results


@dataclass(frozen=True)
class LanguageModel:
    """A scorer with all that its score of a hypothesis depends on, under the name that the weights give it.

    preparation: what is done to a text first. masking, score_eos, overlong, parse_special: as for
    `Scorer.score_iter`; scorer and masking become those that score (see `Scorer.for_masking`). remembered: so
    many texts, those used last, are not scored again when they come back (about 400 bytes each).
    """

    scorer: Scorer
    name: str = "mlm"
    preparation: TextPreparation = field(default_factory=TextPreparation)
    masking: str | None = None
    score_eos: bool = False
    overlong: str = "error"
    parse_special: bool = False
    remembered: int = REMEMBERED_TEXTS
    _memory: TextMemory = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises SettingsError for options that do not fit the model, or a negative `remembered`."""
        if not isinstance(self.remembered, int) or self.remembered < 0:
            raise SettingsError(f"remembered is {self.remembered!r}; expected a number of texts, 0 or more")
        object.__setattr__(self, "_memory", TextMemory(self.remembered))
        object.__setattr__(self, "scorer", self.scorer.for_masking(self.masking))
        object.__setattr__(self, "masking", self.masking or self.scorer.default_masking)
        self.scorer.score_groups((), **self.options())

    def options(self) -> dict[str, Any]:
        """The options of the scorer."""
        return {
            "masking": self.masking,
            "score_eos": self.score_eos,
            "overlong": self.overlong,
            "parse_special": self.parse_special,
        }

    def settings(self) -> dict[str, Any]:
        """What scores depend on; under `environment` the model's name and what changes them only a little."""
        description = self.scorer.describe()
        return {
            "weights_sha256": description.pop("weights_sha256"),
            **self.options(),
            "preparation": self.preparation.settings(),
            "environment": description,
        }

    def score(self, groups: Iterable[Sequence[str]], counts: SharingCounts) -> Iterator[list[ScoredText]]:
        """The results of each group of texts as they stand in the lists, in order.

        The texts of a group are scored together, each distinct one once, and those that were scored before
        not at all. A text that cannot be scored has an error in its place.
        """
        under_way = TextsUnderWay(self._memory)
        waiting: deque[tuple[list[str], list[str]]] = deque()

        def new_texts() -> Iterator[list[str]]:
            for group in groups:
                texts = [self.preparation(text) for text in group]
                new = under_way.begin(texts)
                waiting.append((texts, new))
                yield new

        for results in self.scorer.score_groups(
            new_texts(), on_error="skip", counts=counts, **self.options()
        ):
            texts, new = waiting.popleft()
            for text, result in zip(new, results, strict=True):
                under_way.found(text, scored_text(result))
            scored = under_way.end(texts)
            repeated = Counter(texts) - Counter(new)
            counts.num_texts += len(texts)
            counts.num_repeated += repeated.total()
            counts.num_rows += sum(repeated[text] * scored[text].num_rows for text in repeated)
            yield [scored[text] for text in texts]

    def score_beside(
        self, items: Iterable[tuple[T, Sequence[str]]], counts: SharingCounts
    ) -> Iterator[tuple[T, list[ScoredText]]]:
        """Each of some things with the results of its texts, in order; as `score`."""
        waiting: deque[T] = deque()

        def groups() -> Iterator[Sequence[str]]:
            for item, texts in items:
                waiting.append(item)
                yield texts

        for results in self.score(groups(), counts):
            yield waiting.popleft(), results


def scored_text(result: TextScore) -> ScoredText:
    return ScoredText(result.score, result.num_tokens, result.num_rows, result.error)
