"""How far scores are from exact ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def difference(found: ArrayLike, wanted: ArrayLike) -> float:
    """The root mean square of the differences, as a share of the spread of what is wanted; NaN where one is
    not a number."""
    errors = np.asarray(found) - np.asarray(wanted)
    return float(f"{np.sqrt(np.square(errors).mean()) / np.std(wanted):.2g}")


def rank_flips(found: ArrayLike, wanted: ArrayLike) -> float:
    """The share of pairs of scores whose order changes; a tie on one side alone is half a change."""
    columns = np.asarray(found), np.asarray(wanted)
    first, second = np.triu_indices(len(columns[1]), k=1)
    if len(first) == 0:
        return 0.0
    signs, wanted_signs = (np.sign(values[first] - values[second]) for values in columns)
    return float(np.abs(signs - wanted_signs).mean() / 2)
