"""What a scored text is: its score, its tokens and words, and what was odd about it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mlmfast.errors import SettingsError
from mlmfast.types import Float32Array, Int32Array, Token, Word

PLL_MASKINGS = frozenset({"original", "word_l2r", "whole_word"})
"""Maskings whose sums are pseudo-log-likelihoods; the sum of any other is only a `score`."""

WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class TokenColumns:
    """The scored tokens of one text as columns: k tokens.

    ids int32[k], log_probs float32[k] (nats), char_spans int32[k, 2]; vocabulary maps an id to its token.
    ranks int32[k], entropies float32[k], top_ids and top_log_probs [k, j] only if they were asked for.
    word_starts float32[k, 2], for causal models whose tokens carry their leading space: the log-probability
    that a new word starts at the token, 0 where its token does not start one, and right after the token.
    """

    ids: Int32Array
    log_probs: Float32Array
    char_spans: Int32Array
    vocabulary: Sequence[str]
    ranks: Int32Array | None = None
    entropies: Float32Array | None = None
    top_ids: Int32Array | None = None
    top_log_probs: Float32Array | None = None
    word_starts: Float32Array | None = None


@dataclass(frozen=True)
class TextScore:
    """One text's result.

    score: sum of the scored tokens' log-probabilities in nats (float64), None if there is none to give.
    num_tokens: scored tokens; num_unknown: those that are the unknown token.
    flags: `empty`, `truncated`, `windowed`, `changed:N` (N protein letters changed before scoring).
    error: why the text could not be scored (only under on_error="skip").
    num_rows: the rows that the score is made of, shared with other texts or not.
    student_head: under masking `student`, what its model predicts: the term of each `token`, or the text's
    score (`cls`), which has no tokens and words. end: of the last scored token, in characters of the text.
    """

    text: str | None
    masking: str
    score: float | None
    num_tokens: int = 0
    num_unknown: int = 0
    flags: tuple[str, ...] = ()
    error: str | None = None
    num_rows: int = 0
    student_head: str | None = None
    end: int | None = None
    columns: TokenColumns | None = field(default=None, repr=False, compare=False)

    @property
    def pll(self) -> float | None:
        """The score, where the masking makes it a pseudo-log-likelihood.

        Raises SettingsError for `stride:K`, `none`, `student` and `causal`.
        """
        if self.masking not in PLL_MASKINGS:
            raise SettingsError(
                f"masking {self.masking!r} does not give a pseudo-log-likelihood; "
                f"read .score, or score with one of {', '.join(sorted(PLL_MASKINGS))}"
            )
        return self.score

    @property
    def pppl(self) -> float | None:
        """exp(-score / num_tokens), None without a score (Salazar et al. 2020, section 2.3)."""
        return None if self.score is None else perplexity(self.score, self.num_tokens)

    @property
    def num_words(self) -> int:
        """White-space words, of a truncated text those up to its last scored token."""
        if self.text is None:
            return 0
        return len(self.text[: self.end if "truncated" in self.flags else None].split())

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """The scored tokens, in order; special tokens are not among them."""
        c = self.columns
        if c is None:
            return ()
        return tuple(
            Token(
                token=c.vocabulary[c.ids[k]],
                log_prob=float(c.log_probs[k]),
                start=int(c.char_spans[k, 0]),
                end=int(c.char_spans[k, 1]),
                rank=None if c.ranks is None else int(c.ranks[k]),
                entropy=None if c.entropies is None else float(c.entropies[k]),
                top=None
                if c.top_ids is None or c.top_log_probs is None
                else tuple(
                    (c.vocabulary[i], float(p)) for i, p in zip(c.top_ids[k], c.top_log_probs[k], strict=True)
                ),
            )
            for k in range(len(c.ids))
        )

    @cached_property
    def words(self) -> tuple[Word, ...]:
        """The white-space words of the text; a word's log_prob is the sum of the tokens that touch it.

        A token that touches two words counts for the first. Under `causal` the words of a model whose
        tokens carry their leading space get the correction of Pimentel & Meister (2024, theorem 1) and
        Oh & Schuler (2024).
        """
        if self.text is None or self.columns is None:
            return ()
        return tuple(word_scores(self.text, self.columns))


def perplexity(score: float, count: int) -> float | None:
    """exp(-score / count), inf where that overflows, None for a count of 0."""
    if count == 0:
        return None
    try:
        return math.exp(-score / count)
    except OverflowError:
        return math.inf


def word_scores(text: str, columns: TokenColumns) -> list[Word]:
    """Words of `text` split at white space, each with the sum of its tokens."""
    spans = columns.char_spans
    words = []
    first = 0
    for match in WORD.finditer(text):
        start, end = match.span()
        # A byte-level leading space before a multi-byte letter is a token of no width at the word's start.
        while first < len(spans) and spans[first, 1] <= start and spans[first, 0] < start:
            first += 1
        last = first
        while last < len(spans) and spans[last, 0] < end:
            last += 1
        log_prob = None
        if last > first:
            log_prob = float(np.sum(columns.log_probs[first:last], dtype=np.float64))
            if columns.word_starts is not None:
                log_prob += float(columns.word_starts[last - 1, 1]) - float(columns.word_starts[first, 0])
        words.append(Word(text[start:end], log_prob, start, end, last - first))
        first = last
    return words
