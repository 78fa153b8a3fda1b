"""What can be drawn from logits, by sorting all of them."""

from __future__ import annotations

import numpy as np


def plain_probabilities(
    logits: np.ndarray,
    allowed: np.ndarray,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> np.ndarray:
    """float64[V]."""
    ids = np.flatnonzero(allowed)
    order = ids[np.lexsort((ids, -logits[ids]))]
    if top_k is not None:
        order = order[:top_k]
    scaled = logits[order].astype(np.float64) / temperature
    weights = np.exp(scaled - scaled[0])
    if top_p is not None:
        reached = np.flatnonzero(weights.cumsum() >= top_p * weights.sum())
        order = order[: reached[0] + 1]
    probabilities = np.zeros(len(logits))
    probabilities[order] = weights[: len(order)] / weights[: len(order)].sum()
    return probabilities
