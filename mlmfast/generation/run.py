"""Chains from their starts to their last states, many at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from mlmfast.errors import SettingsError
from mlmfast.generation.alphabet import allowed_tokens, ordinary_tokens
from mlmfast.generation.chain import Chain, Distributions
from mlmfast.generation.distribution import Distribution
from mlmfast.generation.mask_predict import MaskPredict
from mlmfast.generation.metropolis_hastings import MetropolisHastings
from mlmfast.generation.models import require_logits_of_masks
from mlmfast.generation.requests import Asking
from mlmfast.generation.rows import answer
from mlmfast.generation.samplers import POSITIONS, Resampler, Sampler
from mlmfast.generation.settings import GenerationSettings
from mlmfast.generation.state import ChainState, StartState
from mlmfast.plans import check_whole
from mlmfast.scorer import Scorer
from mlmfast.types import BoolArray
from mlmfast.window_groups import consecutive

SAMPLER_CLASSES: dict[str, Callable[[Chain], Sampler]] = {
    **dict.fromkeys(POSITIONS, Resampler),
    "mask_predict": MaskPredict,
    "mh": MetropolisHastings,
}


def generate(
    scorer: Scorer,
    starts: Iterable[StartState],
    settings: GenerationSettings,
    *,
    allowed: BoolArray | None = None,
    first_chain: int = 0,
    num_together: int = 64,
) -> Iterator[list[ChainState]]:
    """A chain per start; its recorded states, as groups of `num_together` chains finish, in chain order.

    With `record_every` a chain's first state is that of step 0; the last is always its final state. What is
    still masked after the last step is filled from left to right before that. Chains are numbered from
    first_chain, and chain c draws its random numbers from `SeedSequence(seed, spawn_key=(c,))` alone: which
    chains run beside it changes nothing (with the native engine no bit; with others, values that differ by
    their rounding can lead to another token). allowed bool[V]: tokens that may be sampled; by default
    those of `allowed_tokens`; special tokens and ids without a token never are.

    Raises SettingsError at once for what does not fit; InputError for a start, after the chains before it;
    ModelError for values that are not finite.
    """
    require_logits_of_masks(scorer.files)
    check_whole("first_chain", first_chain, 0)
    check_whole("num_together", num_together, 1)
    distributions = distributions_of(scorer, settings, allowed)
    chains = (
        Chain(number, start, scorer, settings, distributions)
        for number, start in enumerate(starts, first_chain)
    )
    return (states for group in consecutive(chains, (num_together,)) for states in finish(scorer, group))


def distributions_of(
    scorer: Scorer, settings: GenerationSettings, allowed: BoolArray | None = None
) -> Distributions:
    """What all chains draw from; allowed as for `generate`. Raises SettingsError."""
    tokens = sampled_tokens(scorer, allowed)
    return Distributions(
        full=Distribution(tokens, settings.temperature),
        truncated=Distribution(
            tokens,
            settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            greedy=bool(settings.greedy),
        ),
    )


def sampled_tokens(scorer: Scorer, allowed: BoolArray | None) -> BoolArray:
    """bool[V], the tokens of `allowed` that can be sampled; see `generate`. Raises SettingsError."""
    tokenizer, vocab_size = scorer.files.tokenizer, scorer.files.config.vocab_size
    if allowed is None:
        return allowed_tokens(tokenizer, vocab_size)
    if not isinstance(allowed, np.ndarray) or allowed.dtype != bool or allowed.shape != (vocab_size,):
        raise SettingsError(f"allowed is {allowed!r:.60}; expected bool[{vocab_size}], one for each token")
    tokens = allowed & ordinary_tokens(tokenizer, vocab_size)
    if not tokens.any():
        raise SettingsError("allowed holds no token that can be sampled; special tokens never are")
    return tokens


def finish(scorer: Scorer, chains: Sequence[Chain]) -> list[list[ChainState]]:
    """The recorded states of each chain. All that chains ask for at a time is computed together."""
    lives = [life_of(chain) for chain in chains]
    states: list[list[ChainState]] = [[] for _ in chains]
    answers: dict[int, Any] = dict.fromkeys(range(len(chains)))
    while answers:
        asked = {}
        for index, answered in answers.items():
            try:
                asked[index] = lives[index].send(answered)
            except StopIteration as end:
                states[index] = end.value
        answers = dict(zip(asked, answer(scorer, list(asked.values())), strict=True))
    return states


def life_of(chain: Chain) -> Asking[list[ChainState]]:
    """All steps of a chain; its recorded states."""
    sampler = SAMPLER_CLASSES[chain.settings.sampler](chain)
    num_steps, every = chain.settings.num_steps(len(chain.free)), chain.settings.record_every
    states = []
    accepted = None
    yield from sampler.begin()
    for step in range(num_steps + 1):
        if step > 0:
            accepted = yield from sampler.step(step)
        if step == num_steps:
            yield from chain.fill(step + 1)
        if step == num_steps or (every is not None and step % every == 0):
            energy = yield from sampler.energy()
            states.append(ChainState(chain.number, step, chain.input_ids.copy(), energy, accepted))
    return states
