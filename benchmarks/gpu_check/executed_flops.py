"""The floating-point operations that the packed engine executes, after what it shares and leaves out.

flops.py counts what all masked copies take instead, each computed alone: the useful work, whoever does it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flops import EncoderSize

from mlmfast.types import RowBatch


@dataclass(frozen=True)
class BatchCounts:
    """What the work on one batch depends on."""

    pool: int
    """Distinct inputs of the first layer: tokens of the texts, and masks."""
    tokens: int
    """Of all rows."""
    places: int
    """Distinct tokens with a target."""
    pairs: int
    """Of a query and a key: of every token, all those of its row,"""
    place_pairs: int
    """and of every place."""

    @classmethod
    def of(cls, batch: RowBatch) -> BatchCounts:
        """Places are all targets: no two are of one token under the masking `original`, but of rows that
        several texts share."""
        lengths = batch.row_lengths
        return cls(
            pool=len(batch.input_ids) + len(batch.mask_positions),
            tokens=int(lengths.sum()),
            places=batch.num_targets,
            pairs=int(np.square(lengths).sum()),
            place_pairs=int((lengths * np.diff(batch.target_offsets)).sum()),
        )


def product_flops(size: EncoderSize, batch: BatchCounts) -> int:
    """Of the products with weights but the decoder's: the first layer's projections of the pool, the last
    layer's keys and values of all tokens and the rest of it at the places, the head's transform. At least two
    layers."""
    square, feed_forward = 2 * size.hidden_size**2, 4 * size.hidden_size * size.intermediate_size
    first = 3 * square * batch.pool
    between = (size.num_layers - 2) * 3 * square * batch.tokens
    after_attention = (square + feed_forward) * ((size.num_layers - 1) * batch.tokens + batch.places)
    last = 2 * square * batch.tokens + square * batch.places
    return first + between + after_attention + last + square * batch.places


def executed_flops(size: EncoderSize, batch: BatchCounts) -> int:
    """Of all products: those, the two of attention, and the decoder's at the places."""
    attention = 4 * size.hidden_size * ((size.num_layers - 1) * batch.pairs + batch.place_pairs)
    decoder = 2 * size.hidden_size * size.vocab_size * batch.places
    return product_flops(size, batch) + attention + decoder
