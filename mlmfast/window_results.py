"""The results of a window's texts, from the columns of its tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlmfast.errors import InputError
from mlmfast.plans import ScoringPlan
from mlmfast.results import TextScore, TokenColumns
from mlmfast.tokenization import Tokenizer
from mlmfast.types import BoolArray, Float32Array, Int64Array, TokenizedTexts


class TextResults:
    """What is worked out for all texts at once, so that little is left to do for each."""

    def __init__(
        self,
        texts: TokenizedTexts,
        tokens: Int64Array,
        columns: Mapping[str, NDArray[Any]],
        plan: ScoringPlan,
        tokenizer: Tokenizer,
    ) -> None:
        """tokens int64[K]: the scored ones of all texts, ascending; columns [N, ...]: of TargetOutputs, by
        name, a value for each of the N tokens."""
        self._texts = texts
        self._tokens = tokens
        self._columns = columns
        self._plan = plan
        self._tokenizer = tokenizer
        ids = texts.input_ids[tokens]
        self._is_unknown = ids == tokenizer.special.unknown_id
        self._is_special: BoolArray | None = None
        if plan.score_eos:
            self._is_special = texts.word_ids[tokens] == -1
            # The unknown token may also be the one that ends a text.
            self._is_unknown &= ~self._is_special
        self._word_starts = self._starts_of_words(ids)

    def result(
        self, index: int, text: str, part: slice, *, flags: tuple[str, ...], num_rows: int
    ) -> TextScore | InputError:
        """Of text `index`; part: its scored tokens among the K."""
        masking, head = self._plan.masking.name, self._plan.student_head
        tokens = self._tokens[part]
        if len(tokens) == 0:
            return TextScore(text, masking, score=None, flags=("empty", *flags), student_head=head)
        if head == "cls":
            columns, first = None, self._texts.offsets[index]
            log_probs = self._columns["log_prob"][first : first + 1]
        else:
            columns = self._token_columns(len(text), part)
            log_probs = columns.log_probs
        score = float(log_probs.sum(dtype=np.float64))
        problem = None if math.isfinite(score) else not_finite(log_probs)
        if problem is not None:
            return problem
        return TextScore(
            text,
            masking,
            score=score,
            num_tokens=len(tokens),
            num_rows=num_rows,
            num_unknown=int(np.count_nonzero(self._is_unknown[part])),
            flags=flags,
            student_head=head,
            end=max(self._texts.char_spans[tokens, 1].tolist()),
            columns=columns,
        )

    def _token_columns(self, length: int, part: slice) -> TokenColumns:
        """length: of the text, in characters; part: its tokens among the K."""
        tokens = self._tokens[part]

        def column(name: str) -> Any:
            return self._columns[name][tokens] if name in self._columns else None

        spans = self._texts.char_spans[tokens]
        if self._is_special is not None:
            spans[self._is_special[part]] = length
        return TokenColumns(
            ids=self._texts.input_ids[tokens],
            log_probs=column("log_prob"),
            char_spans=spans,
            vocabulary=self._tokenizer.vocabulary,
            ranks=column("rank"),
            entropies=column("entropy"),
            top_ids=column("top_ids"),
            top_log_probs=column("top_log_probs"),
            word_starts=None if self._word_starts is None else self._word_starts[part].copy(),
        )

    def _starts_of_words(self, ids: NDArray[np.int32]) -> Float32Array | None:
        """float32[K, 2]: see TokenColumns. ids int32[K]: of the scored tokens."""
        starts = self._tokenizer.word_starts if self._plan.outputs.word_start else None
        if starts is None or "word_start_log_prob" not in self._columns:
            return None
        log_probs = np.append(self._columns["word_start_log_prob"], np.float32(np.nan))
        before = np.where(starts[ids] == 1, log_probs[self._tokens], 0)
        pairs = np.stack([before, log_probs[self._tokens + 1]], axis=1)
        found: Float32Array = np.nan_to_num(pairs, nan=0.0)
        return found


def not_finite(values: Float32Array) -> InputError | None:
    """Why the values of a text's tokens cannot be summed, if so."""
    if np.isfinite(values).all():
        return None
    return InputError(
        f"the model gave {values[~np.isfinite(values)][0]} for a token of this text; its weights or this "
        "precision cannot score it"
    )
