"""One chain on its way: its tokens, its random numbers, and what all samplers ask."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mlmfast.errors import InputError, TextTooLongError
from mlmfast.generation.distribution import Distribution, Float64Array
from mlmfast.generation.requests import Asking, Draw, Drawn, Potentials
from mlmfast.generation.settings import GenerationSettings
from mlmfast.generation.state import StartState
from mlmfast.random_streams import random_stream
from mlmfast.scorer import Scorer
from mlmfast.types import BoolArray, Int32Array, Int64Array


@dataclass(frozen=True)
class Distributions:
    """What tokens are drawn from: during the burn-in, and after it."""

    full: Distribution
    truncated: Distribution


class Chain:
    """The state of a chain, which its sampler changes in place.

    number: of the chain, from which its random stream comes. input_ids int32[n]. free int64[f]: positions
    that are sampled; ordinary int64[l]: those of the energy, all but special tokens'.
    """

    def __init__(
        self,
        number: int,
        start: StartState,
        scorer: Scorer,
        settings: GenerationSettings,
        distributions: Distributions,
    ) -> None:
        """Raises InputError for a start that the model cannot take, naming the chain."""
        if not isinstance(start, StartState):
            raise InputError(
                f"{start!r:.40} is no StartState; `mlmfast.generation.starts` makes them from texts",
                where=f"chain {number}",
            )
        special = scorer.files.tokenizer.special
        is_special = np.isin(start.input_ids, sorted(special.all_ids))
        is_mask = start.input_ids == special.mask_id
        self._check(number, start, scorer, is_special, is_mask)
        if settings.sampler == "mh":
            _check_reversible(number, start, is_mask, distributions.full)
        self.number = number
        self.settings = settings
        self.input_ids: Int32Array = start.input_ids.copy()
        self.free: Int64Array = np.flatnonzero(start.is_free)
        self.ordinary: Int64Array = np.flatnonzero(start.is_free | ~is_special)
        self.random = random_stream(settings.seed, number)
        self._token_type_ids = start.token_type_ids
        self._mask_id = special.mask_id
        self._distributions = distributions

    def unfilled(self) -> Int64Array:
        """Positions yet to be filled, in order."""
        return np.flatnonzero(self.input_ids == self._mask_id)

    def fill(self, step: int) -> Asking[None]:
        """Fills what is yet to be filled from left to right, as step `step` draws."""
        for position in self.unfilled():
            drawn = yield from self.draw(np.array([position]), step)
            self.input_ids[position] = drawn.tokens[0]

    def draw(
        self, positions: Int64Array, step: int, *, masked: bool = True, with_log_probs: bool = False
    ) -> Asking[Drawn]:
        """Draws at positions int64[k] as step `step` does, counted from 1; see requests.Draw."""
        is_burn_in = step <= self.settings.burn_in
        drawn: Drawn = yield Draw(
            input_ids=self.input_ids,
            token_type_ids=self._token_type_ids,
            positions=positions,
            uniforms=self.random.random(len(positions)),
            distribution=self._distributions.full if is_burn_in else self._distributions.truncated,
            masked=masked,
            with_log_probs=with_log_probs,
        )
        return drawn

    def potentials(self, input_ids: Int32Array, positions: Int64Array) -> Asking[Float64Array]:
        """Of the tokens at positions int64[k] of a state int32[n] of this chain; see requests.Potentials."""
        if len(positions) == 0:
            return np.zeros(0)
        assert self.settings.energy is not None  # else there are none to ask for
        values: Float64Array = yield Potentials(
            input_ids, self._token_type_ids, positions, self.settings.energy
        )
        return values

    def energy(self) -> Asking[float | None]:
        """See state.ChainState."""
        if self.settings.energy is None or len(self.ordinary) == 0 or len(self.unfilled()) > 0:
            return None
        return energy_of((yield from self.potentials(self.input_ids, self.ordinary)))

    def _check(
        self, number: int, start: StartState, scorer: Scorer, is_special: BoolArray, is_mask: BoolArray
    ) -> None:
        where, ids = f"chain {number}", start.input_ids
        vocab_size, max_length = scorer.files.config.vocab_size, scorer.engine.max_length
        if len(ids) > max_length:
            raise TextTooLongError(
                f"{len(ids)} tokens, but the model takes {max_length}; start shorter", where=where
            )
        if len(ids) > 0 and not 0 <= ids.min() <= ids.max() < vocab_size:
            raise InputError(
                f"token ids from {ids.min()} to {ids.max()}, but the model has 0 to {vocab_size - 1}",
                where=where,
            )
        problems = (
            (is_special & ~is_mask & start.is_free, "holds a special token but is free; only others can be"),
            (
                is_mask & ~start.is_free,
                "holds the mask token but is not free, and would stay; make it free",
            ),
        )
        for found, problem in problems:
            if found.any():
                raise InputError(f"position {np.flatnonzero(found)[0]} {problem}", where=where)


def _check_reversible(number: int, start: StartState, is_mask: BoolArray, full: Distribution) -> None:
    """Raises InputError for a free token that is not allowed: no proposal would be reversible."""
    stuck = start.is_free & ~is_mask
    stuck[stuck] = ~full.allows(start.input_ids[stuck])
    if stuck.any():
        position = int(np.flatnonzero(stuck)[0])
        raise InputError(
            f"position {position} is free and holds token {start.input_ids[position]}, which may not be "
            "sampled, so that mh could never change it; mask it, allow its token, or fix it",
            where=f"chain {number}",
        )


def energy_of(potentials: Float64Array) -> float:
    """E(x) = - sum over t of s_t(x), float64[l] (Goyal et al. 2022)."""
    return -math.fsum(potentials)
