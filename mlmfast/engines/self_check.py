"""Which of the exact precisions a model runs in by default, decided on a few texts when it is loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from mlmfast.engines.base import Engine, ModelFiles, Outputs
from mlmfast.errors import ModelError
from mlmfast.scheduling import Masking, Segments, mask_rows, row_batch
from mlmfast.scheduling.segments import at_first_token
from mlmfast.types import Int64Array, RowBatch

logger = logging.getLogger(__name__)

E = TypeVar("E", bound=Engine)

LARGEST_DIFFERENCE = 5e-5
"""Nats per token between a fast precision and float32 on the texts below. Half of what float32 promises:
the worst of many thousand tokens was found to be about twice the worst of these."""
MASKING = Masking.parse("stride:3")
"""A third of the tokens masked: harder to predict than one by one, and three rows per text."""
UNMASKED = Masking.parse("student")
SENTENCES = (
    "The committee did not publish the names of the witnesses it had heard in private.",
    "Although nobody had asked her to, she repaired the old clock and hung it above the door.",
    "In 1987, about 40% of the region's farms were smaller than two hectares (five acres).",
    "\u201cWhere were you?\u201d he said; \u201cwe waited an hour in the rain.\u201d",
    "Photosynthesis converts light, water and carbon dioxide into sugar and oxygen.",
    "xqz green ideas of of sleep the furiously",
)
PROTEINS = (
    "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILS",
    "RVGDGTQDNLSGAEKAVQVKVKALPDAQFEVVHSLAKW",
    "EVQLVESGGGLVQPGGSLRLSCAASGFTFSSYAMSWVR",
)


def fastest_exact(files: ModelFiles, load: Callable[[str], E], fast: Sequence[str]) -> E:
    """An engine in the first of the precisions `fast` that gives what float32 gives, else in float32.
    load: an engine of a precision.

    One engine is in memory at a time.
    """
    plain = load("float32")
    batch = check_batch(files)
    expected = plain.score(batch, Outputs()).log_prob
    del plain
    for precision in fast:
        engine = load(precision)
        found = engine.score(batch, Outputs()).log_prob
        difference = float((np.abs(found - expected) / tokens_per_value(files, batch)).max(initial=0.0))
        exact = len(expected) > 0 and difference <= LARGEST_DIFFERENCE  # False for NaN
        logger.info(
            "%s is %s: at most %.1e from float32 over %d tokens, %.1e allowed",
            precision, "used" if exact else "not used", difference, len(expected), LARGEST_DIFFERENCE,
        )  # fmt: skip
        if exact:
            return engine
        del engine
    return load("float32")


def check_batch(files: ModelFiles) -> RowBatch:
    """The rows of those texts above that the model takes whole."""
    tokenizer = files.tokenizer
    texts = PROTEINS if tokenizer.protein else SENTENCES
    lengths = tokenizer.encode(texts).lengths
    taken = tokenizer.encode([t for t, n in zip(texts, lengths, strict=True) if n <= files.config.max_length])
    segments = Segments(taken, np.where(taken.word_ids >= 0, 0, -1))
    if files.config.student_head == "cls":
        segments = at_first_token(segments, taken.offsets)
    is_student = files.config.kind == "student"
    rows = mask_rows(taken, segments.slots, UNMASKED if is_student else MASKING)
    mask_id = -1 if is_student else tokenizer.special.mask_id
    if mask_id is None:
        raise ModelError(f"{files.source.name}: its tokenizer has no mask token, which a masked model needs")
    return row_batch(taken, rows, np.arange(len(rows.text_index)), mask_id)[0]


def tokens_per_value(files: ModelFiles, batch: RowBatch) -> Int64Array | int:
    """How many tokens a target's value stands for, int64[t]: a student with head cls predicts a sum."""
    if files.config.student_head != "cls":
        return 1
    return batch.row_lengths
