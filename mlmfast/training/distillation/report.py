"""What a student is worth: agreement on held-out texts, lists and pairs, and speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlmfast.scorer import Scorer
from mlmfast.tokenization import Tokenizer
from mlmfast.training.distillation.agreement import agreement
from mlmfast.training.distillation.corpus import Corpus, encoded
from mlmfast.training.distillation.nbest import NBestLists
from mlmfast.training.distillation.pairs import Pairs
from mlmfast.types import Int64Array, JsonRecord

TIMED_SECONDS = 2.0
TIMED_TEXTS = 64

Scores = NDArray[Any]


@dataclass(frozen=True)
class ScoredTexts:
    """Texts of which some cannot be scored: `corpus` has the distinct ones that can, `place` int64[*] says
    which of them each text is, -1 for none."""

    corpus: Corpus
    place: Int64Array

    @classmethod
    def of(cls, texts: Sequence[str], tokenizer: Tokenizer, max_length: int) -> ScoredTexts:
        """Texts without a token or longer than the model takes cannot be scored."""
        distinct = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        corpus = encoded(list(distinct), tokenizer)
        kept = np.flatnonzero((corpus.num_tokens > 0) & (corpus.lengths <= max_length))
        place = np.full(len(distinct), -1)
        place[kept] = np.arange(len(kept))
        return cls(corpus.subset(kept), place[[distinct[text] for text in texts]])

    def spread(self, scores: Scores) -> Scores:
        """Scores of the corpus's texts as those of all texts, float64[*], NaN where there is none."""
        return np.append(scores.astype(np.float64), np.nan)[self.place]

    @property
    def num_tokens(self) -> Int64Array:
        """int64[*], 0 where a text cannot be scored."""
        return np.append(self.corpus.num_tokens, 0)[self.place]


@dataclass(frozen=True)
class Trials:
    """What a finished student is tested on beside the held-out texts, with what of it can be scored."""

    lists: NBestLists | None = None
    list_texts: ScoredTexts | None = None
    pairs: Pairs | None = None
    pair_texts: ScoredTexts | None = None

    @classmethod
    def of(
        cls, lists: NBestLists | None, pairs: Pairs | None, tokenizer: Tokenizer, max_length: int
    ) -> Trials:
        return cls(
            lists,
            None if lists is None else ScoredTexts.of(lists.texts, tokenizer, max_length),
            pairs,
            None if pairs is None else ScoredTexts.of((*pairs.good, *pairs.bad), tokenizer, max_length),
        )

    def describe(self) -> JsonRecord:
        named = (("lists", self.list_texts), ("pairs", self.pair_texts))
        return {name: None if texts is None else texts.corpus.describe() for name, texts in named}


def held_out_report(teacher: Scores, student: Scores, num_tokens: Int64Array, num_clean: int) -> JsonRecord:
    """Scores [S] of texts of which the first `num_clean` are as they were read, the others corrupted."""
    parts = {"all": slice(None)}
    if num_clean < len(teacher):
        parts |= {"clean": slice(num_clean), "corrupted": slice(num_clean, None)}
    return {
        name: agreement(teacher[part], student[part], num_tokens[part]).record()
        for name, part in parts.items()
    }


def tokens_per_second(
    scorer: Scorer, texts: Sequence[str], masking: str, clock: Callable[[], float] = time.monotonic
) -> float:
    """Tokens scored in a second, on some of the texts and for a few seconds at most, after a warm-up."""
    for _ in scorer.score_iter(texts[:8], masking):
        pass
    started = clock()
    num_tokens = 0
    remaining = iter(texts)
    while part := list(islice(remaining, TIMED_TEXTS)):
        num_tokens += sum(result.num_tokens for result in scorer.score_iter(part, masking))
        if clock() - started >= TIMED_SECONDS:
            break
    return num_tokens / max(clock() - started, 1e-9)
