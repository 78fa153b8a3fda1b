"""Few sizes that batches are padded to, so that a graph captured at a size runs every batch of it.

What is padded are texts and rows of one token each, after the real ones: rows like any other, which nobody
reads. n tokens of b packed rows, N tokens of S texts, M masks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlmfast.engines.packed.layout import HostArrays, HostLayout
from mlmfast.types import Int32Array

SMALL_SIZES = (512, 1024, 2048, 4096)
"""Tokens of batches whose kernels should take less time than their launches (counted, not measured on a GPU):
to double them costs less than it saves."""
FULL_SHARE = 7 / 8
"""Of the one large size, that of a full batch: a batch at least so full is padded to it. Those between run as
they are: their launches hide behind their kernels, and padding would not."""
COPIES = 8
"""Masked copies are usually of texts of so many tokens or more, and so their pool n / COPIES texts' tokens
and n / COPIES masks."""
BUCKETS_OF_A_SIZE = 2
"""With masks, and without."""
PADDED_ID = 0
"""A token that every vocabulary has."""


@dataclass(frozen=True)
class Bucket:
    """Sizes of a padded batch, in tokens each of which may be a row or text of its own."""

    num_tokens: int
    num_text_tokens: int
    num_masks: int

    def holds(self, host: HostLayout) -> bool:
        """Where a packed token is left over, for the padded masks to stand at."""
        inputs = host.inputs
        return (
            len(array(inputs, "row_text")) <= host.num_tokens < self.num_tokens
            and len(array(inputs, "text_offsets")) - 1 <= len(array(inputs, "text_ids"))
            and len(array(inputs, "text_ids")) <= self.num_text_tokens
            and len(array(inputs, "mask_positions")) <= self.num_masks
        )


def sizes_up_to(num_tokens: int) -> tuple[int, ...]:
    """Of the buckets where full batches have a token less than num_tokens."""
    return (*(size for size in SMALL_SIZES if size < num_tokens), num_tokens)


def bucket_for(host: HostLayout, sizes: tuple[int, ...]) -> Bucket | None:
    """The least that holds the batch; None where padding is not worth while, or none does.

    Without masks the texts are rows themselves; there is no masked padding then, as the model may have no
    mask token. Tokens whose positions are not counted are rare, and not provided for.
    """
    if host.position_skip_id is not None:
        return None
    has_masks = len(array(host.inputs, "mask_positions")) > 0
    for size in sizes:
        is_worth_while = size <= SMALL_SIZES[-1] or host.num_tokens >= FULL_SHARE * size
        bucket = Bucket(size, size // COPIES, size // COPIES) if has_masks else Bucket(size, size, 0)
        if is_worth_while and bucket.holds(host):
            return bucket
    return None


def padded(host: HostLayout, bucket: Bucket) -> HostArrays:
    """The inputs at the bucket's sizes; b and S are its num_tokens and num_text_tokens. All masks that are
    padded stand at the last token, whatever it becomes."""
    inputs, size = host.inputs, bucket.num_tokens
    num_rows, num_masks = len(array(inputs, "row_text")), len(array(inputs, "mask_positions"))
    row_of_last_token = num_rows + size - host.num_tokens - 1
    mask_offsets = np.full(size + 1, bucket.num_masks, dtype=np.int32)
    mask_offsets[: num_rows + 1] = array(inputs, "mask_offsets")
    mask_offsets[num_rows + 1 : row_of_last_token + 1] = num_masks
    types, scale = inputs["text_types"], inputs["row_scale"]
    return {
        "text_ids": filled(array(inputs, "text_ids"), bucket.num_text_tokens, PADDED_ID),
        "text_types": None if types is None else filled(types, bucket.num_text_tokens, 0),
        "text_offsets": with_single_tokens(array(inputs, "text_offsets"), bucket.num_text_tokens),
        "row_text": filled(array(inputs, "row_text"), size, 0),
        "row_starts": with_single_tokens(array(inputs, "row_starts"), size),
        "mask_positions": filled(array(inputs, "mask_positions"), bucket.num_masks, 0),
        "mask_offsets": mask_offsets,
        "row_scale": None if scale is None else filled(scale, size, 1),
    }


def array(arrays: HostArrays, name: str) -> NDArray[Any]:
    """One that is always there."""
    found = arrays[name]
    assert found is not None
    return found


def filled(values: NDArray[Any], length: int, fill: int) -> NDArray[Any]:
    """values [*] and `fill` after them, [length]."""
    output = np.full(length, fill, dtype=values.dtype)
    output[: len(values)] = values
    return output


def with_single_tokens(offsets: NDArray[Any], length: int) -> Int32Array:
    """int32[length+1]: offsets [rows+1], then rows of one token each up to `length`, then empty ones."""
    after = np.arange(1, length + 2 - len(offsets), dtype=np.int32)
    return np.concatenate([offsets, np.minimum(offsets[-1] + after, length)]).astype(np.int32)
