"""Every sampler as a plain loop over one chain, a row at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from generation_toys import FIRST, MASK, LogitsOf, log_sum_exp
from plain_distribution import plain_probabilities

from mlmfast.generation import GenerationSettings

State = tuple[int, ...]


def potential(logits_of: LogitsOf, state: State, position: int, kind: str) -> float:
    """In float64."""
    logits = logits_of(masked(state, [position]), position)
    logit = float(logits[state[position]])
    return logit if kind == "raw" else logit - float(log_sum_exp(logits))


def energy(logits_of: LogitsOf, state: State, kind: str) -> float:
    return -math.fsum(potential(logits_of, state, i, kind) for i in range(len(state)))


def masked(state: State, positions: list[int]) -> State:
    return tuple(MASK if i in positions else token for i, token in enumerate(state))


class PlainChain:
    """All positions but fixed ones are free; ordinary tokens alone can be drawn."""

    def __init__(self, logits_of: LogitsOf, settings: GenerationSettings, number: int) -> None:
        self.logits_of, self.settings = logits_of, settings
        stream = np.random.SeedSequence(settings.seed, spawn_key=(number,))
        self.random = np.random.Generator(np.random.Philox(stream))

    def probabilities(self, row: State, position: int, step: int) -> np.ndarray:
        logits, settings = self.logits_of(row, position), self.settings
        allowed = np.arange(len(logits)) >= FIRST
        top_k = 1 if settings.greedy else settings.top_k
        if step <= settings.burn_in:
            return plain_probabilities(logits, allowed, settings.temperature)
        return plain_probabilities(logits, allowed, settings.temperature, top_k, settings.top_p)

    def draw(self, state: State, positions: list[int], step: int, *, visible: bool = False) -> State:
        row = state if visible else masked(state, positions)
        new = list(state)
        for position, uniform in zip(positions, self.random.random(len(positions)), strict=True):
            cumulative = self.probabilities(row, position, step).cumsum()
            new[position] = int(np.flatnonzero(cumulative > uniform * cumulative[-1])[0])
        return tuple(new)

    def fill(self, state: State, step: int) -> State:
        for position in range(len(state)):
            if state[position] == MASK:
                state = self.draw(state, [position], step)
        return state

    def positions(self, free: list[int], step: int) -> list[int]:
        settings = self.settings
        if settings.sampler == "gibbs":
            return [free[self.random.integers(len(free))]]
        if settings.sampler == "sequential":
            return [free[(step - 1) % len(free)]]
        if settings.sampler == "parallel":
            return free
        return sorted(self.random.choice(free, min(settings.block_size, len(free)), replace=False).tolist())

    def states(self, state: State, free: list[int]) -> Iterator[State]:
        """Before each step, then the last, filled."""
        num_steps = self.settings.num_steps(len(free))
        if self.settings.sampler == "mh":
            state = self.fill(state, 0)
        confidence = dict.fromkeys(free, -math.inf)
        for step in range(1, num_steps + 1):
            yield state
            if self.settings.sampler == "mask_predict":
                state = self.mask_predict(state, free, step, num_steps, confidence)
            elif self.settings.sampler == "mh":
                state = self.metropolis_hastings(state, free, step)
            else:
                visible = not self.settings.mask_sampled
                state = self.draw(state, self.positions(free, step), step, visible=visible)
        yield self.fill(state, num_steps + 1)

    def mask_predict(
        self, state: State, free: list[int], step: int, num_steps: int, confidence: dict[int, float]
    ) -> State:
        count = math.floor(len(free) * (num_steps - (step - 1)) / num_steps)
        chosen = sorted(sorted(free, key=lambda i: (confidence[i], i))[:count])
        row = masked(state, chosen)
        state = self.draw(state, chosen, step)
        for i in chosen:
            logits = self.logits_of(row, i)
            confidence[i] = np.log(plain_probabilities(logits, np.arange(len(logits)) >= FIRST)[state[i]])
        return state

    def metropolis_hastings(self, state: State, free: list[int], step: int) -> State:
        """From its definition: energies of both states, probabilities of both proposals."""
        i = free[self.random.integers(len(free))]
        log_uniform = -self.random.standard_exponential()
        proposal = self.draw(state, [i], step)
        ratio = acceptance_ratio(
            self.logits_of,
            state,
            proposal,
            self.probabilities(masked(state, [i]), i, step),
            i,
            str(self.settings.energy),
        )
        return proposal if ratio > 0 and log_uniform <= math.log(ratio) else state


def acceptance_ratio(
    logits_of: LogitsOf, state: State, proposal: State, probabilities: np.ndarray, i: int, kind: str
) -> float:
    """pi(x') q(x | x') / (pi(x) q(x' | x)), with the probabilities of the tokens at i."""
    target = math.exp(energy(logits_of, state, kind) - energy(logits_of, proposal, kind))
    return target * float(probabilities[state[i]] / probabilities[proposal[i]])
