"""The plain float64 twins of the kernels: what the fast versions are tested against."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from mlmfast.types import Float32Array, Int32Array, Int64Array, TargetOutputs

Float64Array = NDArray[np.float64]


def target_log_softmax(
    hidden: Float32Array,
    weight: Float32Array,
    bias: Float32Array | None,
    target_ids: Int32Array,
    target_offsets: Int64Array,
    *,
    outputs: Collection[str] = ("log_prob",),
    top_k: int = 0,
    subset: NDArray[np.uint8] | None = None,
) -> TargetOutputs:
    """Log-softmax of `hidden weight^T + bias` at the targets, computed in float64, given in float32.

    hidden [m, H], weight [V, H], bias [V]; row r owns the targets target_offsets[r] to
    target_offsets[r+1] of target_ids [t]. outputs names fields of TargetOutputs; top_k > 0 adds the
    top ones; subset uint8[V] flags the classes of word_start_log_prob. A row with a NaN or an infinite
    largest logit gives NaN, rank -1 and top_ids -1. Checks nothing: mlmfast.kernels.head does.
    """
    rows = np.repeat(np.arange(len(hidden)), np.diff(target_offsets))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        logits = hidden[rows].astype(np.float64) @ weight.T.astype(np.float64)
        if bias is not None:
            logits += bias
        log_probs = log_softmax(logits)
        targets = np.arange(len(target_ids)), target_ids
        target_logits, target_log_probs = logits[targets], log_probs[targets]
        is_nan = np.isnan(target_log_probs)
        rank = entropy = word_start_log_prob = top_ids = top_log_probs = None
        if "rank" in outputs:
            rank = np.where(is_nan, -1, np.sum(logits > target_logits[:, None], axis=1)).astype(np.int32)
        if "entropy" in outputs:
            probs = np.exp(log_probs)
            entropy = -np.sum(np.where(probs == 0, 0, probs * log_probs), axis=1)
        if "word_start_log_prob" in outputs and subset is not None:
            flagged = np.where(subset != 0, log_probs, -np.inf)
            word_start_log_prob = np.where(is_nan, np.nan, log_sum_exp(flagged))
        if top_k > 0:
            order = np.argsort(-logits, axis=1, kind="stable")[:, :top_k]
            top_ids = np.where(is_nan[:, None], -1, order).astype(np.int32)
            top_log_probs = np.where(is_nan[:, None], np.nan, np.take_along_axis(log_probs, order, axis=1))
    return TargetOutputs(
        log_prob=target_log_probs.astype(np.float32),
        logit=as_float32(target_logits) if "logit" in outputs else None,
        logits=as_float32(logits) if "logits" in outputs else None,
        rank=rank,
        entropy=as_float32(entropy),
        top_ids=top_ids,
        top_log_probs=as_float32(top_log_probs),
        word_start_log_prob=as_float32(word_start_log_prob),
    )


def log_softmax(logits: Float64Array) -> Float64Array:
    """Over the last axis; NaN where every logit is -inf."""
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True)))


def log_sum_exp(log_probs: Float64Array) -> Float64Array:
    """log of the sum of exp over the last axis; -inf where every entry is -inf."""
    largest = np.max(log_probs, axis=-1)
    shift = np.where(largest == -np.inf, 0, largest)
    return np.asarray(shift + np.log(np.sum(np.exp(log_probs - shift[..., None]), axis=-1)))


def as_float32(values: Float64Array | None) -> Float32Array | None:
    return None if values is None else values.astype(np.float32)
