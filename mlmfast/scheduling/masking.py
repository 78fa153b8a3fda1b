"""Which positions are masked in which row, and which targets each row answers."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlmfast.errors import SettingsError
from mlmfast.results import PLL_MASKINGS
from mlmfast.scheduling.csr import offsets_of, ranges
from mlmfast.types import Int64Array, MaskedRows, TokenizedTexts

NAMES = ("original", "word_l2r", "whole_word", "stride:K", "none", "student", "causal")
STRIDE = re.compile(r"stride:([1-9][0-9]{0,8})")


@dataclass(frozen=True)
class Masking:
    """How a text becomes rows.

    original: one row per target, that target masked (Salazar et al. 2020, section 2.1).
    word_l2r: the target and the later tokens of its word masked (Kauf & Ivanova 2023, section 3).
    whole_word: one row per word, all its tokens masked and scored.
    stride:K: at most K rows per text, row r masking and scoring every K-th target from the r-th; approximate.
    none: one unmasked row, and student: the same, read by a model distilled to give scores from it.
    causal: one row, each target predicted from the tokens before it.
    """

    kind: str
    stride: int = 0

    @classmethod
    def parse(cls, name: str) -> Masking:
        """Raises SettingsError for an unknown name or a stride that is not 1 to 999999999."""
        if not isinstance(name, str):
            raise SettingsError(f"masking is {name!r}; expected one of {', '.join(NAMES)}")
        if name in NAMES and name != "stride:K":
            return cls(name)
        stride = STRIDE.fullmatch(name)
        if stride is not None:
            return cls("stride", int(stride[1]))
        raise SettingsError(
            f"unknown masking {name!r:.60}; expected one of {', '.join(NAMES)} "
            "(K a whole number from 1 to 999999999)"
        )

    @property
    def name(self) -> str:
        return f"stride:{self.stride}" if self.kind == "stride" else self.kind

    @property
    def is_pll(self) -> bool:
        return self.kind in PLL_MASKINGS

    @property
    def keeps_words_whole(self) -> bool:
        """True if a target's row depends on the other tokens of its word."""
        return self.kind in ("word_l2r", "whole_word")


def word_groups(texts: TokenizedTexts) -> tuple[Int64Array, Int64Array]:
    """A group per word and per special token. int64[N], each token's group; int64[G+1], group offsets."""
    num_tokens = len(texts.input_ids)
    begins = np.zeros(num_tokens, dtype=bool)
    begins[texts.offsets[:-1][texts.lengths > 0]] = True
    begins[1:] |= texts.word_ids[1:] != texts.word_ids[:-1]
    begins |= texts.word_ids == -1
    return np.cumsum(begins) - 1, np.append(np.flatnonzero(begins), num_tokens).astype(np.int64)


def mask_rows(texts: TokenizedTexts, slots: Int64Array, masking: Masking) -> MaskedRows:
    """The rows of all texts, in text order.

    slots int64[N]: where the result of each token goes, -1 for a token that is no target.
    """
    targets = np.flatnonzero(slots >= 0)
    text_of = np.repeat(np.arange(texts.num_texts), texts.lengths)[targets]

    if masking.kind == "original":
        row_of_target = np.arange(len(targets))
        masks, mask_counts = targets, np.ones(len(targets), dtype=np.int64)
    elif masking.kind == "word_l2r":
        group, group_offsets = word_groups(texts)
        row_of_target = np.arange(len(targets))
        mask_counts = group_offsets[group[targets] + 1] - targets
        masks = ranges(targets, mask_counts)
    elif masking.kind == "whole_word":
        group, group_offsets = word_groups(texts)
        groups, row_of_target = np.unique(group[targets], return_inverse=True)
        mask_counts = np.diff(group_offsets)[groups]
        masks = ranges(group_offsets[groups], mask_counts)
    elif masking.kind == "stride":
        rank = np.arange(len(targets)) - np.searchsorted(text_of, text_of)
        phase = rank % masking.stride
        order = np.lexsort((phase, text_of))
        targets, text_of, phase = targets[order], text_of[order], phase[order]
        begins = np.ones(len(targets), dtype=bool)
        begins[1:] = (text_of[1:] != text_of[:-1]) | (phase[1:] != phase[:-1])
        row_of_target = np.cumsum(begins) - 1
        masks, mask_counts = targets, np.bincount(row_of_target)
    else:
        _, row_of_target = np.unique(text_of, return_inverse=True)
        num_rows = int(row_of_target[-1]) + 1 if len(targets) else 0
        masks, mask_counts = targets[:0], np.zeros(num_rows, dtype=np.int64)

    return _rows(texts, slots, targets, text_of, row_of_target, masks, mask_counts)


def _rows(
    texts: TokenizedTexts,
    slots: Int64Array,
    targets: NDArray[np.int64],
    text_of_target: NDArray[np.int64],
    row_of_target: NDArray[np.int64],
    masks: NDArray[np.int64],
    mask_counts: NDArray[np.int64],
) -> MaskedRows:
    """targets int64[T] and masks int64[M] are token indices, in row order."""
    target_counts = np.bincount(row_of_target, minlength=len(mask_counts))
    target_offsets = offsets_of(target_counts)
    text_index = text_of_target[target_offsets[:-1]].astype(np.int32)
    row_starts = texts.offsets[text_index]
    return MaskedRows(
        text_index=text_index,
        mask_positions=(masks - np.repeat(row_starts, mask_counts)).astype(np.int32),
        mask_offsets=offsets_of(mask_counts),
        target_positions=(targets - np.repeat(row_starts, target_counts)).astype(np.int32),
        target_ids=texts.input_ids[targets],
        target_slots=slots[targets],
        target_offsets=target_offsets,
    )
