"""A window of texts: prepared into batches, then put together into results.

Memory is bounded by the window; so are sharing and sorting by length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlmfast.errors import InputError, SettingsError, TextTooLongError
from mlmfast.plans import ScoringPlan
from mlmfast.results import TextScore
from mlmfast.scheduling import mask_rows, pack_for_workers, row_batch, share_rows, truncate, window
from mlmfast.scheduling.segments import (
    Segments,
    at_first_token,
    longest_window_word,
    multi_token_words,
    room,
)
from mlmfast.tokenization import Tokenizer, prepare_protein
from mlmfast.types import (
    BoolArray,
    Float32Array,
    Int32Array,
    Int64Array,
    MaskedRows,
    RowBatch,
    TargetOutputs,
    TokenizedTexts,
)
from mlmfast.window_results import TextResults

UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
"""Letters of scripts written without spaces: Thai, Lao, Burmese, Khmer, Kana, Han."""
LONGEST_LONE_WORD = 64
"""Tokens of a text that is one word, beyond which word boundaries were plainly not found."""


class Window:
    """Some texts on their way through an engine: prepare (here), score each batch, read the results."""

    def __init__(self, inputs: Sequence[object], plan: ScoringPlan, tokenizer: Tokenizer) -> None:
        """inputs: texts, or an InputError in the place of a text that could not be read."""
        self._inputs = inputs
        self._plan = plan
        self._tokenizer = tokenizer
        self._errors: dict[int, InputError] = {}
        self._entries: list[int | InputError] = []
        distinct: dict[str, int] = {}
        for item in inputs:
            text = _valid_text(item)
            self._entries.append(
                text if isinstance(text, InputError) else distinct.setdefault(text, len(distinct))
            )
        self._strings = list(distinct)
        self._flags: list[list[str]] = [[] for _ in distinct]
        self._texts = self._tokenize()
        self._scored = self._choose_targets()
        self._mark_refused()
        segments = self._fit(self._slots())
        self._tokens = self._scored.nonzero()[0]
        self._token_offsets = self._tokens.searchsorted(self._texts.offsets).tolist()
        if plan.student_head == "cls":
            segments = at_first_token(segments, self._texts.offsets)
        rows = mask_rows(segments.texts, segments.slots, plan.masking)
        unmasked = plan.causal or plan.student_head is not None
        self._mask_id = -1 if unmasked else _known(tokenizer.special.mask_id)
        self.rows = share_rows(segments.texts, rows, self._mask_id)
        self._segments = segments
        self.batches = self.batches_of(np.arange(self.rows.num_rows))
        self._num_rows_of_text = self._count_rows(rows)
        self.num_rows = sum(self._num_rows_of_text[e] for e in self._entries if isinstance(e, int))
        self.num_computed = self.rows.num_rows
        self._columns: dict[str, NDArray[Any]] = {}

    @property
    def num_inputs(self) -> int:
        """The inputs it was made of."""
        return len(self._inputs)

    def restrict(self, tokens: Int64Array) -> None:
        """Only the rows of some scored tokens, int64[k] among the N, are computed."""
        row_of = np.zeros(len(self.input_ids), dtype=np.int64)
        num_targets = np.diff(self.rows.target_offsets)
        row_of[self.rows.target_slots] = np.repeat(np.arange(self.rows.num_rows), num_targets)
        asked = np.unique(row_of[tokens])
        self.batches = self.batches_of(asked)
        self.num_computed = len(asked)

    def batches_of(self, rows: Int64Array) -> list[Int64Array]:
        """Some of the window's rows, int64[r], as batches of row indices for all workers."""
        lengths = self._segments.texts.lengths[self.rows.text_index[rows]]
        batches = pack_for_workers(lengths, self._plan.max_batch_tokens, self._plan.num_workers)
        return [rows[batch] for batch in batches]

    def batch(self, indices: Int64Array) -> tuple[RowBatch, Int64Array]:
        """One of `batches` as an engine takes it, and where its results go."""
        return row_batch(self._segments.texts, self.rows, indices, self._mask_id)

    def scatter(self, found: TargetOutputs, slots: Int64Array) -> None:
        """Put a batch's results where they belong."""
        for name, values in vars(found).items():
            if values is None:
                continue
            if name not in self._columns:
                self._columns[name] = np.empty((len(self.input_ids), *values.shape[1:]), values.dtype)
                self._columns[name].fill(np.nan if values.dtype.kind == "f" else -1)
            self._columns[name][slots] = values

    def tokens_of(self, index: int) -> Int64Array | InputError:
        """Where the scored tokens of input `index` are among the window's N tokens, int64[k], or why there
        are none."""
        entry = self._entries[index]
        if isinstance(entry, InputError):
            return entry
        if entry in self._errors:
            return self._errors[entry]
        start, end = self._token_offsets[entry : entry + 2]
        return self._tokens[start:end]

    @property
    def input_ids(self) -> Int32Array:
        """int32[N], the window's tokens."""
        return self._texts.input_ids

    @property
    def log_probs(self) -> Float32Array:
        """float32[N], NaN for a token that is not scored or not computed yet."""
        return self._values("log_prob")

    @property
    def logits(self) -> Float32Array:
        """float32[N], the scored tokens' own logits if they were asked for; NaN likewise."""
        return self._values("logit")

    def _values(self, name: str) -> Float32Array:
        if name not in self._columns:
            return np.full(len(self._texts.input_ids), np.nan, dtype=np.float32)
        return self._columns[name]

    def text(self, index: int) -> str | None:
        """Input `index`, if it is a text at all."""
        found = _valid_text(self._inputs[index])
        return found if isinstance(found, str) else None

    def results(self) -> list[TextScore | InputError]:
        """One per input, in order, once every batch has been scattered."""
        found = TextResults(self._texts, self._tokens, self._columns, self._plan, self._tokenizer)
        by_text = [
            self._errors.get(index)
            or found.result(
                index,
                text,
                slice(*self._token_offsets[index : index + 2]),
                flags=tuple(self._flags[index]),
                num_rows=self._num_rows_of_text[index],
            )
            for index, text in enumerate(self._strings)
        ]
        return [e if isinstance(e, InputError) else by_text[e] for e in self._entries]

    def _tokenize(self) -> TokenizedTexts:
        plan = self._plan
        if not self._tokenizer.protein:
            return self._tokenizer.encode(self._strings, causal=plan.causal, parse_special=plan.parse_special)
        special = self._tokenizer.special_names if plan.parse_special else ()
        prepared = [prepare_protein(s, special) for s in self._strings]
        texts = self._tokenizer.encode(
            [p.sequence for p in prepared], causal=plan.causal, parse_special=plan.parse_special
        )
        for index, protein in enumerate(prepared):
            if protein.num_changed:
                self._flags[index].append(f"changed:{protein.num_changed}")
            tokens = slice(texts.offsets[index], texts.offsets[index + 1])
            spans = texts.char_spans[tokens]
            ordinary = texts.word_ids[tokens] != -1
            kept = np.array(protein.kept, dtype=np.int32)
            spans[ordinary] = np.stack([kept[spans[ordinary, 0]], kept[spans[ordinary, 1] - 1] + 1], axis=1)
        return texts

    def _choose_targets(self) -> BoolArray:
        """bool[N]: the tokens whose log-probabilities make up the score."""
        texts, plan = self._texts, self._plan
        scored: BoolArray = texts.word_ids != -1
        if plan.causal:
            # Without a begin-of-sequence token nothing stands before the first token to predict it from.
            scored[texts.offsets[:-1][texts.lengths > 0]] = False
        if plan.score_eos:
            final = self._final_special_tokens()
            scored[final] = True
        return scored

    def _final_special_tokens(self) -> NDArray[np.int64]:
        """Token indices of the special token that ends each text that has content."""
        texts = self._texts
        has_content = np.zeros(texts.num_texts, dtype=bool)
        has_content[texts.text_of_token[texts.word_ids != -1]] = True
        final: NDArray[np.int64] = texts.offsets[1:][has_content] - 1
        special: NDArray[np.int64] = final[texts.word_ids[final] == -1]
        return special

    def _mark_refused(self) -> None:
        """Errors of texts that cannot be scored as asked; their tokens are no targets."""
        texts, plan = self._texts, self._plan
        too_long = (texts.lengths > plan.max_tokens).nonzero()[0]
        if plan.overlong == "error":
            for index in too_long:
                self._errors[int(index)] = TextTooLongError(
                    f"{texts.lengths[index]} tokens, but the model takes {plan.max_tokens} (special tokens "
                    "included); use overlong='window' or 'truncate' (--overlong)"
                )
        else:
            for index in too_long:
                self._flags[index].append("truncated" if plan.overlong == "truncate" else "windowed")
                if room(texts, int(index), plan.max_tokens) < 1:
                    self._errors[int(index)] = TextTooLongError(
                        f"{texts.lengths[index]} tokens, and its special tokens leave no room for others in "
                        f"the {plan.max_tokens} that the model takes; use parse_special=False"
                        if plan.parse_special
                        else f"the model takes {plan.max_tokens} tokens, too few for any text"
                    )
        if plan.masking.keeps_words_whole:
            content = np.bincount(texts.text_of_token[texts.word_ids != -1], minlength=texts.num_texts)
            for text, start, end in zip(*multi_token_words(texts), strict=True):
                problem = self._word_problem(int(text), int(start), int(end), int(content[text]))
                if problem is not None:
                    self._errors.setdefault(int(text), problem)
        for refused in self._errors:
            self._scored[texts.offsets[refused] : texts.offsets[refused + 1]] = False

    def _word_problem(self, index: int, start: int, end: int, num_content: int) -> InputError | None:
        """Why a word of several tokens cannot be kept whole, if so. num_content: the text's own tokens."""
        texts, plan = self._texts, self._plan
        num_tokens = end - start
        word = self._strings[index][texts.char_spans[start, 0] : texts.char_spans[end - 1, 1]]
        num_special = int(texts.lengths[index]) - num_content
        if len(UNSPACED.findall(word)) > 1:
            why = "its script is written without spaces and the tokenizer takes it for one word"
        elif num_content == num_tokens > LONGEST_LONE_WORD:
            why = "it is the whole text"
        elif (
            plan.overlong == "window"
            and num_content + num_special > plan.max_tokens
            and num_tokens > longest_window_word(plan.max_tokens - num_special)
        ):
            why = "no window holds it whole"
        else:
            return None
        shown = word if len(word) <= 20 else f"{word[:20]}..."
        return InputError(
            f"masking {plan.masking.name!r} needs words, but {shown!r} is {num_tokens} tokens long: {why}; "
            "use masking 'original'"
        )

    def _slots(self) -> Int64Array:
        """int64[N]: where a token's results go, which is its own place; -1 for one not computed."""
        computed = self._scored
        if self._plan.outputs.word_start:
            # The end of a text is where the last word's end is predicted, scored or not.
            computed, final = computed.copy(), self._final_special_tokens()
            failed = np.isin(self._texts.text_of_token[final], list(self._errors))
            computed[final[~failed]] = True
        slots = np.arange(len(computed))
        slots[~computed] = -1
        return slots

    def _fit(self, slots: Int64Array) -> Segments:
        texts, plan = self._texts, self._plan
        if plan.overlong == "error" or (texts.lengths <= plan.max_tokens).all():
            return Segments(texts, slots)
        if plan.overlong == "truncate":
            segments = truncate(texts, slots, plan.max_tokens)
            kept = np.zeros(len(slots), dtype=bool)
            kept[segments.slots[segments.slots >= 0]] = True
            self._scored &= kept
            return segments
        return window(
            texts, slots, plan.max_tokens, causal=plan.causal, whole_words=plan.masking.keeps_words_whole
        )

    def _count_rows(self, rows: MaskedRows) -> list[int]:
        """The rows of each of the S texts, had none been shared."""
        first_slot = rows.target_slots[rows.target_offsets[:-1]]
        text_of = self._texts.offsets.searchsorted(first_slot, side="right") - 1
        counts: list[int] = np.bincount(text_of, minlength=len(self._strings)).tolist()
        return counts


def placed(error: InputError, number: int) -> InputError:
    """The error of text `number` of a call, at its line or else its number."""
    return error if error.line is not None else error.at(where=f"texts[{number}]")


def _valid_text(item: object) -> str | InputError:
    if isinstance(item, InputError):
        return item
    if not isinstance(item, str):
        return InputError(f"expected a string, found {type(item).__name__} {item!r:.40}")
    try:
        item.encode("utf-8")
    except UnicodeEncodeError as error:
        return InputError(
            f"not valid Unicode: half a surrogate pair, {item[error.start]!r}, at character {error.start + 1}"
        )
    return item


def _known(mask_id: int | None) -> int:
    if mask_id is None:
        raise SettingsError("the tokenizer has no mask token")
    return mask_id
