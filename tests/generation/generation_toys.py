"""Models small enough to enumerate: the logits of a place are any function of the row and the position."""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from mlmfast.engines import Outputs
from mlmfast.engines.base import ModelFiles
from mlmfast.generation import GenerationSettings, StartState
from mlmfast.generation.chain import Chain
from mlmfast.generation.run import distributions_of
from mlmfast.models import Checkpoint, ModelConfig, ModelSource
from mlmfast.scheduling import expand
from mlmfast.scorer import Scorer
from mlmfast.tokenization import SpecialTokens, Tokenizer
from mlmfast.types import RowBatch, TargetOutputs

CLS, SEP, MASK, UNKNOWN, NO_TOKEN = range(5)
FIRST = 5
"""The first ordinary token; those before are special, unknown, or an id without a token."""
LogitsOf = Callable[[tuple[int, ...], int], np.ndarray]


class ToyEngine:
    """float32[V] logits from a row with its masks and a position."""

    max_length = 64
    max_batch_tokens = 256
    max_workers = None

    def __init__(self, logits_of: LogitsOf) -> None:
        self.logits_of = logits_of
        self.num_rows = 0
        self.batches: list[tuple[RowBatch, Outputs]] = []

    def prepare_thread(self) -> None:
        pass

    def describe(self) -> dict[str, Any]:
        return {"engine": "toy", "versions": {}}

    def score(self, batch: RowBatch, outputs: Outputs) -> TargetOutputs:
        self.num_rows += batch.num_rows
        self.batches.append((batch, outputs))
        packed = expand(batch)
        rows = [tuple(packed.input_ids[a:b].tolist()) for a, b in pairwise(packed.cu_seqlens.tolist())]
        row_of = np.repeat(np.arange(len(rows)), np.diff(batch.target_offsets))
        places = zip(row_of.tolist(), batch.target_positions.tolist(), strict=True)
        logits = np.array([self.logits_of(rows[row], position) for row, position in places], dtype=np.float32)
        logit = logits[np.arange(len(logits)), batch.target_ids]
        return TargetOutputs(
            log_prob=(logit - log_sum_exp(logits)).astype(np.float32),
            logit=logit if outputs.logit else None,
            logits=logits if outputs.logits else None,
        )


def log_sum_exp(logits: np.ndarray) -> np.ndarray:
    """float64[...], of float32[..., V]."""
    wide = logits.astype(np.float64)
    highest = wide.max(axis=-1)
    return highest + np.log(np.exp(wide - highest[..., None]).sum(axis=-1))


def toy_scorer(logits_of: LogitsOf, num_ordinary: int, workers: int = 1) -> Scorer:
    """A scorer of a model with the ordinary tokens a, b, c ... behind five that are never sampled."""
    names = ["[CLS]", "[SEP]", "[MASK]", "[UNK]"]
    letters = [chr(ord("a") + index) for index in range(num_ordinary)]
    vocabulary = {name: index for index, name in enumerate(names)}
    vocabulary |= {letter: FIRST + index for index, letter in enumerate(letters)}
    definition = {"model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}}
    special = SpecialTokens(
        mask_id=MASK, unknown_id=UNKNOWN, bos_id=CLS, eos_id=SEP, pad_id=None, all_ids=frozenset({0, 1, 2})
    )
    config = ModelConfig("toy", "ToyForMaskedLM", "masked", 64, FIRST + num_ordinary, {})
    files = ModelFiles(
        ModelSource("toy", Path("toy")), config, Checkpoint(()), Tokenizer(json.dumps(definition), special)
    )
    return Scorer(files, ToyEngine(logits_of), workers=workers)


def tabulated(conditionals: list[dict[int, list[float]]]) -> LogitsOf:
    """Two variables at positions 0 and 1: conditionals[i][other] are the probabilities of the token at i."""

    @cache
    def logits_of(row: tuple[int, ...], position: int) -> np.ndarray:
        other = row[1 - position]
        known = conditionals[position].get(other - FIRST, [0.5, 0.5])
        return np.array([50.0] * FIRST + np.log(known).tolist(), dtype=np.float32)

    return logits_of


def hashed(num_ordinary: int, spread: float = 2.0) -> LogitsOf:
    """Logits that depend on the whole row in no pattern; the highest are those of tokens never sampled."""

    @cache
    def logits_of(row: tuple[int, ...], position: int) -> np.ndarray:
        seed = zlib.crc32(repr((row, position)).encode())
        ordinary = np.random.default_rng(seed).normal(0, spread, num_ordinary)
        return np.concatenate([np.full(FIRST, 2 * spread), ordinary]).astype(np.float32)

    return logits_of


def all_states(length: int, num_ordinary: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(FIRST, FIRST + num_ordinary), repeat=length))


def free_start(ids: tuple[int, ...] | list[int]) -> StartState:
    """All positions free."""
    return StartState(np.array(ids, dtype=np.int32), np.ones(len(ids), dtype=bool))


class ScriptedRandom:
    """Random numbers that are given, in place of a chain's own."""

    def __init__(self, integer: int = 0, uniform: float = 0.0, exponential: float = 0.0) -> None:
        self.integer, self.uniform, self.exponential = integer, uniform, exponential

    def integers(self, high: int) -> int:
        assert self.integer < high
        return self.integer

    def random(self, size: int) -> np.ndarray:
        return np.full(size, self.uniform)

    def standard_exponential(self) -> float:
        return self.exponential


def chain_of(scorer: Scorer, start: StartState, settings: GenerationSettings, number: int = 0) -> Chain:
    return Chain(number, start, scorer, settings, distributions_of(scorer, settings))
