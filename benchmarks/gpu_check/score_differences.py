"""How far scores are from exact ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def difference(found: Sequence[float], wanted: Sequence[float]) -> float:
    """The root mean square of the differences, as a share of the spread of what is wanted; NaN where one is
    not a number."""
    errors = np.array(found) - np.array(wanted)
    return float(f"{np.sqrt(np.square(errors).mean()) / np.std(wanted):.2g}")


def rank_flips(scores: np.ndarray, exact: np.ndarray) -> float:
    """The share of pairs of texts whose order changes; a tie on one side alone is half a change."""
    first, second = np.triu_indices(len(exact), k=1)
    if len(first) == 0:
        return 0.0
    signs, exact_signs = (np.sign(values[first] - values[second]) for values in (scores, exact))
    return float(np.abs(signs - exact_signs).mean() / 2)
