"""Metropolis-Hastings with a masked language model as proposal and target (Goyal et al. 2022, "Exposing the
Implicit Energy Networks behind Masked Language Models via Metropolis-Hastings").

The target is proportional to exp(-E(x)) with E(x) = - sum over t of s_t(x), where s_t(x) is the logit (`raw`)
or the log-probability (`norm`) of x_t in the row in which only t is masked. A step proposes a token at one
free position i from the row with i masked, which is the same row for x and for the proposal x'.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from mlmfast.generation.chain import Chain, energy_of
from mlmfast.generation.distribution import Float64Array
from mlmfast.generation.requests import Asking
from mlmfast.types import Int64Array

CHUNK = 8
"""Rows computed before it is seen whether a proposal is already rejected."""


def own_term(change: float, temperature: float) -> float:
    """(1 - 1/tau) (f_i(x'_i) - f_i(x_i)): what position i itself adds to the logarithm of the acceptance
    ratio, once from the target, where the normaliser of the row cancels, and once from the proposals, where
    the mass of the truncated set does, too. change: the difference of the logits f_i.
    """
    return change - change / temperature  # a number also where 1 / temperature is too large for one


def log_acceptance(before: Float64Array, after: Float64Array, own: float) -> float:
    """sum over t != i of s_t(x') - s_t(x), plus the own term: the logarithm of the acceptance ratio.

    before float64[l - 1]: all s_t(x); after float64[k]: s_t(x') of any k of the positions. Where these are at
    most 0 and k < l - 1 it is an upper bound, also as rounded, since the sum is that of exact arithmetic.
    """
    return math.fsum((own, *after.tolist(), *(-before).tolist()))


class MetropolisHastings:
    """See samplers.Sampler.

    Masks in the start are filled from the full distribution, from left to right, before step 0. A proposal
    whose reverse has probability 0, as x_i is outside the truncated or allowed set, is rejected; one that is
    x itself is accepted. Neither costs rows beyond the shared one; others cost l - 1 at most: with `norm` the
    rows come in chunks, those of the least probable tokens of x first, whose terms are likely to matter most,
    until the proposal is rejected whatever the rest may be.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._potentials = np.zeros(0)  # float64[n], s_t(x), 0 for special tokens

    def begin(self) -> Asking[None]:
        """See samplers.Sampler."""
        chain = self._chain
        yield from chain.fill(step=0)
        self._potentials = np.zeros(len(chain.input_ids))
        self._potentials[chain.ordinary] = yield from chain.potentials(chain.input_ids, chain.ordinary)

    def step(self, number: int) -> Asking[bool | None]:
        """See samplers.Sampler."""
        chain = self._chain
        i = chain.free[chain.random.integers(len(chain.free))]
        log_uniform = -chain.random.standard_exponential()
        drawn = yield from chain.draw(np.array([i]), number)
        if drawn.tokens[0] == chain.input_ids[i]:
            return True
        if not drawn.reversible[0]:
            return False
        change = float(drawn.changes[0])
        own = own_term(change, chain.settings.temperature)
        proposal = chain.input_ids.copy()
        proposal[i] = drawn.tokens[0]
        others = chain.ordinary[chain.ordinary != i]
        others = others[np.argsort(self._potentials[others], kind="stable")]
        before, after = self._potentials[others], np.zeros(0)
        for part in self._parts(others):
            after = np.append(after, (yield from chain.potentials(proposal, part)))
            if log_acceptance(before, after, own) < log_uniform:
                return False
        chain.input_ids[i] = proposal[i]
        self._potentials[others] = after
        self._potentials[i] += change
        return True

    def energy(self) -> Asking[float | None]:
        """See samplers.Sampler."""
        yield from ()
        return energy_of(self._potentials) if len(self._chain.ordinary) > 0 else None

    def _parts(self, others: Int64Array) -> Iterator[Int64Array]:
        """Positions as they are computed, the acceptance known or bounded after each part. The first part of
        `norm` is empty: there is a bound before any row."""
        if self._chain.settings.energy == "raw":
            yield others
            return
        yield others[:0]
        for start in range(0, len(others), CHUNK):
            yield others[start : start + CHUNK]
