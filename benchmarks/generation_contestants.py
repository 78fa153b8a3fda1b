"""The Gibbs samplers that bench_generation.py times: chains of one length, a random place each a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForMaskedLM

import mlmfast
from mlmfast.engines.base import Outputs
from mlmfast.engines.torch_load import quiet_transformers
from mlmfast.generation import GenerationSettings, StartState, generate
from mlmfast.types import BoolArray, Int32Array, RowBatch

Conditionals = Callable[[Int32Array, NDArray[np.int64]], NDArray[np.float64]]
"""States int32[chains, n] and a place of each, int64[chains], to log-probabilities float64[chains, V] of the
tokens there, with that place masked."""


@dataclass(frozen=True)
class Sampler:
    """run: the states int32[steps + 1, chains, n] of chains from starts of one length without masks, which
    mlmfast would fill after the last step."""

    run: Callable[[Sequence[StartState], int], Int32Array]
    conditionals: Conditionals


class Streams:
    """The random numbers of each chain as mlmfast draws them: in every step a free place, then a number."""

    def __init__(self, starts: Sequence[StartState], seed: int) -> None:
        self._free = [np.flatnonzero(start.is_free) for start in starts]
        self._streams = [
            np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(chain,))))
            for chain in range(len(starts))
        ]

    def step(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Places int64[chains] and uniform numbers float64[chains]."""
        both = [
            (free[stream.integers(len(free))], stream.random())
            for free, stream in zip(self._free, self._streams, strict=True)
        ]
        places, uniforms = zip(*both, strict=True)
        return np.array(places), np.array(uniforms)


def huggingface(
    folder: Path,
    mask_id: int,
    allowed: BoolArray,
    seed: int,
    *,
    gathered: bool,
    dtype: torch.dtype = torch.float32,
) -> Sampler:
    """As it is mostly written: a forward of all chains a step, and of its logits [chains, n, V] those of the
    sampled places. gathered: the head at these places alone, which takes a look inside the model."""
    with quiet_transformers():
        model = AutoModelForMaskedLM.from_pretrained(folder, dtype=dtype).eval()
    forbidden = torch.from_numpy(~allowed)

    def logits(states: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """[chains, V]"""
        rows = torch.arange(len(states))
        masked = states.clone()
        masked[rows, places] = mask_id
        if gathered:
            head = model.cls if hasattr(model, "cls") else model.lm_head
            found: torch.Tensor = head(model.base_model(input_ids=masked).last_hidden_state[rows, places])
        else:
            found = model(input_ids=masked).logits[rows, places]
        return found

    @torch.inference_mode()
    def run(starts: Sequence[StartState], num_steps: int) -> Int32Array:
        states = torch.from_numpy(np.stack([start.input_ids for start in starts])).long()
        streams = Streams(starts, seed)
        passed = [states.clone()]
        for _ in range(num_steps):
            places, uniforms = map(torch.from_numpy, streams.step())
            weights = logits(states, places).masked_fill(forbidden, -torch.inf).double().softmax(dim=-1)
            cumulative = weights.cumsum(dim=-1)
            drawn = torch.searchsorted(cumulative, uniforms[:, None] * cumulative[:, -1:], right=True)
            states[torch.arange(len(states)), places] = drawn[:, 0]
            passed.append(states.clone())
        return torch.stack(passed).int().numpy()

    @torch.inference_mode()
    def conditionals(states: Int32Array, places: NDArray[np.int64]) -> NDArray[np.float64]:
        found = logits(torch.from_numpy(states).long(), torch.from_numpy(places))
        return found.double().log_softmax(dim=-1).numpy()

    return Sampler(run, conditionals)


def by_mlmfast(scorer: mlmfast.Scorer, seed: int) -> Sampler:
    """mlmfast.generation; all chains advance together."""
    mask_id = scorer.files.tokenizer.special.mask_id
    assert mask_id is not None

    def run(starts: Sequence[StartState], num_steps: int) -> Int32Array:
        settings = GenerationSettings(sampler="gibbs", steps=num_steps, seed=seed, record_every=1)
        chains = generate(scorer, starts, settings, num_together=len(starts))
        return np.stack([[state.input_ids for state in chain] for chain in chains], axis=1)

    def conditionals(states: Int32Array, places: NDArray[np.int64]) -> NDArray[np.float64]:
        num_chains, length = states.shape
        each = np.arange(num_chains + 1)
        batch = RowBatch(
            input_ids=states.reshape(-1),
            text_offsets=each * length,
            token_type_ids=None,
            row_text=each[:-1].astype(np.int32),
            mask_positions=places.astype(np.int32),
            mask_offsets=each,
            target_positions=places.astype(np.int32),
            target_ids=np.zeros(num_chains, dtype=np.int32),
            target_offsets=each,
            mask_token_id=mask_id,
        )
        found = scorer.engine.score(batch, Outputs(logits=True)).logits
        assert found is not None  # they were asked for
        return torch.from_numpy(found).double().log_softmax(dim=-1).numpy()

    return Sampler(run, conditionals)
