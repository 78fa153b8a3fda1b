"""The columns that travel between the stages: plain arrays with CSR offsets, no behaviour.

S texts, N tokens, R rows, M masks, T targets in one window; n tokens, b rows, t targets in one batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
Float32Array = NDArray[np.float32]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class TokenizedTexts:
    """S texts as tokens, special tokens included.

    input_ids int32[N]; offsets int64[S+1]; token_type_ids int32[N] or None; word_ids int32[N], the
    tokenizer's own words counted from 0 in each text, -1 for a special token; char_spans int32[N, 2],
    start and end in characters of the text.
    """

    input_ids: Int32Array
    offsets: Int64Array
    token_type_ids: Int32Array | None
    word_ids: Int32Array
    char_spans: Int32Array

    @property
    def num_texts(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int64Array:
        """int64[S], tokens per text."""
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def text_of_token(self) -> Int64Array:
        """int64[N], the text of each token."""
        return np.arange(self.num_texts).repeat(self.lengths)


@dataclass(frozen=True)
class MaskedRows:
    """R rows to forward, as positions; a row's ids are its text's with the masks applied.

    text_index int32[R]; mask_positions int32[M] with mask_offsets int64[R+1]; target_positions int32[T],
    target_ids int32[T] and target_slots int64[T] (where each result goes) with target_offsets int64[R+1].
    Positions count from the start of the row.
    """

    text_index: Int32Array
    mask_positions: Int32Array
    mask_offsets: Int64Array
    target_positions: Int32Array
    target_ids: Int32Array
    target_slots: Int64Array
    target_offsets: Int64Array

    @property
    def num_rows(self) -> int:
        return len(self.text_index)


@dataclass(frozen=True)
class RowBatch:
    """What an engine gets: each distinct text of the batch once, and its rows as positions.

    input_ids int32[*], text_offsets int64[*], token_type_ids int32[*] or None: the distinct texts.
    row_text int32[b]: the text of each row. Masks and targets as in MaskedRows.
    """

    input_ids: Int32Array
    text_offsets: Int64Array
    token_type_ids: Int32Array | None
    row_text: Int32Array
    mask_positions: Int32Array
    mask_offsets: Int64Array
    target_positions: Int32Array
    target_ids: Int32Array
    target_offsets: Int64Array
    mask_token_id: int

    @property
    def num_rows(self) -> int:
        return len(self.row_text)

    @property
    def row_lengths(self) -> Int64Array:
        """int64[b], tokens per row."""
        return np.diff(self.text_offsets)[self.row_text]

    @property
    def num_tokens(self) -> int:
        """Of all rows."""
        return int(self.row_lengths.sum())

    @property
    def num_targets(self) -> int:
        return len(self.target_ids)


@dataclass(frozen=True)
class ExpandedBatch:
    """The plain packed form of a RowBatch: rows back to back, masks applied, no padding.

    input_ids int32[n]; token_type_ids int32[n] or None; position_ids int32[n], from 0 in each row;
    cu_seqlens int32[b+1]; max_seqlen; target_indices int64[t] into the n tokens; target_ids int32[t].
    """

    input_ids: Int32Array
    token_type_ids: Int32Array | None
    position_ids: Int32Array
    cu_seqlens: Int32Array
    max_seqlen: int
    target_indices: Int64Array
    target_ids: Int32Array


@dataclass(frozen=True)
class TargetOutputs:
    """Results per target, natural logs. log_prob float32[t] always; the others only if asked:
    logit float32[t], rank int32[t] (0 = most probable), entropy float32[t] (nats),
    top_ids int32[t, k] and top_log_probs float32[t, k], word_start_log_prob float32[t] (log of the
    probability that the target's place begins a new word or ends the text; causal models), logits
    float32[t, V] (of every token at the target's place)."""

    log_prob: Float32Array
    logit: Float32Array | None = None
    rank: Int32Array | None = None
    entropy: Float32Array | None = None
    top_ids: Int32Array | None = None
    top_log_probs: Float32Array | None = None
    word_start_log_prob: Float32Array | None = None
    logits: Float32Array | None = None


@dataclass(frozen=True)
class Token:
    """One scored token. log_prob in nats; start and end in characters of the text."""

    token: str
    log_prob: float
    start: int
    end: int
    rank: int | None = None
    entropy: float | None = None
    top: tuple[tuple[str, float], ...] | None = None


@dataclass(frozen=True)
class Word:
    """One white-space word. log_prob in nats, None if no scored token touches it."""

    word: str
    log_prob: float | None
    start: int
    end: int
    num_tokens: int


JsonRecord = dict[str, Any]
