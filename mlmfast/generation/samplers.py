"""Samplers that draw at some positions of a step and keep what was drawn.

Each position's token is drawn given the others as they are: masked (`mask_sampled`) or visible.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from mlmfast.generation.chain import Chain
from mlmfast.generation.requests import Asking
from mlmfast.types import Int64Array


class Sampler(Protocol):
    """Moves one chain from step to step, which are counted from 1."""

    def begin(self) -> Asking[None]:
        """What comes before step 1."""

    def step(self, number: int) -> Asking[bool | None]:
        """Changes the chain; whether the proposal was accepted, None for samplers without proposals."""

    def energy(self) -> Asking[float | None]:
        """Of the chain's state; see state.ChainState."""


def gibbs_positions(chain: Chain, step: int) -> Int64Array:
    """Random scan: one free position, drawn uniformly (Wang & Cho 2019, "BERT has a Mouth, and It Must
    Speak")."""
    return chain.free[[chain.random.integers(len(chain.free))]]


def sequential_positions(chain: Chain, step: int) -> Int64Array:
    """One free position, from left to right, again and again (Wang & Cho 2019, sequential sampling)."""
    return chain.free[[(step - 1) % len(chain.free)]]


def parallel_positions(chain: Chain, step: int) -> Int64Array:
    """All free positions at once."""
    return chain.free


def block_positions(chain: Chain, step: int) -> Int64Array:
    """block_size free positions at once, drawn without replacement; each token is drawn from its own marginal
    distribution, as the others of the block are masked, too."""
    assert chain.settings.block_size is not None  # set for block
    size = min(chain.settings.block_size, len(chain.free))
    return np.sort(chain.random.choice(chain.free, size, replace=False))


POSITIONS: dict[str, Callable[[Chain, int], Int64Array]] = {
    "gibbs": gibbs_positions,
    "sequential": sequential_positions,
    "parallel": parallel_positions,
    "block": block_positions,
}


class Resampler:
    """See Sampler: gibbs, sequential, parallel and block, which differ in the positions of a step."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._positions = POSITIONS[chain.settings.sampler]

    def begin(self) -> Asking[None]:
        """See Sampler."""
        yield from ()

    def step(self, number: int) -> Asking[bool | None]:
        """See Sampler."""
        chain = self._chain
        positions = self._positions(chain, number)
        drawn = yield from chain.draw(positions, number, masked=chain.settings.mask_sampled)
        chain.input_ids[positions] = drawn.tokens
        return None

    def energy(self) -> Asking[float | None]:
        """See Sampler."""
        return self._chain.energy()
