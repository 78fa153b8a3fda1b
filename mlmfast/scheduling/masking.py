"""Which positions are masked in which row, and which targets each row answers."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from mlmfast.errors import SettingsError
from mlmfast.results import PLL_MASKINGS
from mlmfast.scheduling.csr import offsets_of, ranges, runs, select
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
    targets = (slots >= 0).nonzero()[0]
    text_of = texts.text_of_token[targets]

    if masking.kind == "original":
        target_offsets = mask_offsets = np.arange(len(targets) + 1)
        masks = targets
    elif masking.kind == "word_l2r":
        group, group_offsets = word_groups(texts)
        target_offsets = np.arange(len(targets) + 1)
        mask_counts = group_offsets[group[targets] + 1] - targets
        masks, mask_offsets = ranges(targets, mask_counts), offsets_of(mask_counts)
    elif masking.kind == "whole_word":
        group, group_offsets = word_groups(texts)
        group_of_target = group[targets]
        target_offsets = runs(group_of_target)
        masks, mask_offsets = select(group_offsets, group_of_target[target_offsets[:-1]])
    elif masking.kind == "stride":
        rank = np.arange(len(targets)) - np.searchsorted(text_of, text_of)
        phase = rank % masking.stride
        order = np.lexsort((phase, text_of))
        targets, text_of = targets[order], text_of[order]
        target_offsets = mask_offsets = runs(text_of * masking.stride + phase[order])
        masks = targets
    else:
        target_offsets = runs(text_of)
        masks, mask_offsets = targets[:0], np.zeros_like(target_offsets)

    text_index = text_of[target_offsets[:-1]]
    starts = texts.offsets[text_index]
    return MaskedRows(
        text_index=text_index.astype(np.int32),
        mask_positions=(masks - starts.repeat(mask_offsets[1:] - mask_offsets[:-1])).astype(np.int32),
        mask_offsets=mask_offsets,
        target_positions=(targets - texts.offsets[text_of]).astype(np.int32),
        target_ids=texts.input_ids[targets],
        target_slots=slots[targets],
        target_offsets=target_offsets,
    )
