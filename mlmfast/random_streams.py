"""Streams of random numbers, each of which depends on its own name alone."""

from __future__ import annotations

import numpy as np


def random_stream(seed: int, *key: int) -> np.random.Generator:
    """The stream of this seed and key: no other key's use of its own changes it."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=key)))
