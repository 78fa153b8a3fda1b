"""What is random in a run, the rows of each step among it: functions of the seed and the step alone.

Nothing random outlives a step, so that a resumed run needs no state of a generator.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mlmfast.types import Int64Array

ORDER, MASKS, DROPOUT, HELD_OUT, BUCKETS = range(5)
"""What is drawn, each from a stream of its own."""


def random_of(seed: int, stream: int, *numbers: int) -> np.random.Generator:
    return np.random.default_rng([seed, stream, *numbers])


def rows_of_step(num_rows: int, batch_size: int, seed: int, step: int) -> Int64Array:
    """int64[batch_size], the rows of step `step`, counted from 1.

    Every epoch goes through all rows once, in an order of its own; a batch may reach into the next epoch.
    """
    places = np.arange((step - 1) * batch_size, step * batch_size)
    epochs = places // num_rows
    parts = [epoch_order(num_rows, seed, int(e))[places[epochs == e] % num_rows] for e in np.unique(epochs)]
    return np.concatenate(parts)


@lru_cache(maxsize=2)
def epoch_order(num_rows: int, seed: int, epoch: int) -> Int64Array:
    """int64[num_rows], all rows as epoch `epoch`, counted from 0, goes through them."""
    return random_of(seed, ORDER, epoch).permutation(num_rows)
