"""Mask-Predict (Ghazvininejad et al. 2019, "Mask-Predict: Parallel Decoding of Conditional Masked Language
Models", section 3)."""

from __future__ import annotations

import numpy as np

from mlmfast.generation.chain import Chain
from mlmfast.generation.requests import Asking


def num_masked(num_free: int, step: int, num_steps: int) -> int:
    """n_t = floor(N (T - t) / T) with t = step - 1: all N in step 1, about N / T in step T."""
    return num_free * (num_steps - step + 1) // num_steps


class MaskPredict:
    """See samplers.Sampler. Step 1 masks all free positions, whatever they hold, and fills them at once; step
    t + 1 does so with the n_t whose tokens were the least probable when they were drawn, of equal ones those
    to the left. Tokens are the most probable ones (`greedy`, the default), or drawn."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._num_steps = chain.settings.num_steps(len(chain.free))
        self._log_probs = np.full(len(chain.free), -np.inf)

    def begin(self) -> Asking[None]:
        """See samplers.Sampler."""
        yield from ()

    def step(self, number: int) -> Asking[bool | None]:
        """See samplers.Sampler."""
        count = num_masked(len(self._log_probs), number, self._num_steps)
        if count == 0:
            return None
        chosen = np.sort(np.argsort(self._log_probs, kind="stable")[:count])
        positions = self._chain.free[chosen]
        drawn = yield from self._chain.draw(positions, number, with_log_probs=True)
        self._chain.input_ids[positions] = drawn.tokens
        self._log_probs[chosen] = drawn.log_probs
        return None

    def energy(self) -> Asking[float | None]:
        """See samplers.Sampler."""
        return self._chain.energy()
