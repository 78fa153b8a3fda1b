"""Dynamic masking: the targets of a row are drawn anew each time it comes (Liu et al. 2019, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlmfast.errors import ModelError
from mlmfast.scheduling.csr import select
from mlmfast.tokenization import Tokenizer
from mlmfast.training.rows import TrainingRows
from mlmfast.training.settings import MaskingSettings
from mlmfast.types import Int32Array, Int64Array


@dataclass(frozen=True)
class MaskedBatch:
    """Rows as a model sees them, back to back, and what it is asked.

    input_ids int32[n]; offsets int64[b+1]; target_positions int64[t], ascending, among the n;
    target_ids int32[t].
    """

    input_ids: Int32Array
    offsets: Int64Array
    target_positions: Int64Array
    target_ids: Int32Array

    @property
    def num_rows(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_targets(self) -> int:
        return len(self.target_ids)

    def part(self, rows: Int64Array) -> MaskedBatch:
        """Some of the rows, int64[k], in that order."""
        tokens, offsets = select(self.offsets, rows)
        targets, target_offsets = select(np.searchsorted(self.target_positions, self.offsets), rows)
        moved = np.repeat(offsets[:-1] - self.offsets[rows], np.diff(target_offsets))
        return MaskedBatch(
            self.input_ids[tokens],
            offsets,
            self.target_positions[targets] + moved,
            self.target_ids[targets],
        )


@dataclass(frozen=True)
class Vocabulary:
    """What masking puts into rows: the mask token, and ordinary tokens int32[k] for random ones."""

    mask_id: int
    ordinary_ids: Int32Array

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Vocabulary:
        """Raises ModelError without a mask token."""
        special = tokenizer.special
        if special.mask_id is None:
            raise ModelError("the tokenizer has no mask token; only masked language models are tuned here")
        left_out = special.all_ids | {special.unknown_id}
        ordinary = [i for i, token in enumerate(tokenizer.vocabulary) if token and i not in left_out]
        return cls(special.mask_id, np.array(ordinary, dtype=np.int32))


def masked_batch(
    rows: TrainingRows,
    indices: Int64Array,
    settings: MaskingSettings,
    vocabulary: Vocabulary,
    random: np.random.Generator,
) -> MaskedBatch:
    """The rows `indices`, int64[b], with targets drawn by `random`.

    Each ordinary token, or each word with all its tokens, is a target with the same probability,
    independently; what replaces a target is drawn per token. A batch may be left without any.
    """
    tokens, offsets = select(rows.offsets, indices)
    ids, words = rows.input_ids[tokens], rows.word_index[tokens]
    drawn = random.random(len(tokens))
    if settings.whole_word:
        drawn = drawn[_first_of_word(words, offsets)]
    targets = np.flatnonzero((drawn < settings.probability) & (words >= 0))
    kind = random.random(len(targets))
    others = random.choice(vocabulary.ordinary_ids, len(targets))
    seen = ids.copy()
    seen[targets] = np.select(
        [kind < settings.mask_share, kind < settings.mask_share + settings.random_share],
        [np.full(len(targets), vocabulary.mask_id), others],
        ids[targets],
    )
    return MaskedBatch(seen, offsets, targets, ids[targets])


def _first_of_word(words: Int64Array, offsets: Int64Array) -> Int64Array:
    """int64[n]: for each token, the first of its word in its row."""
    begins = np.zeros(len(words), dtype=bool)
    begins[offsets[:-1]] = True
    begins[1:] |= words[1:] != words[:-1]
    first: Int64Array = np.flatnonzero(begins)[np.cumsum(begins) - 1]
    return first
