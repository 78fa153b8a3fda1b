"""An engine without a model: every output is a hash of all that it may depend on."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from tiny_models import MODELS

from mlmfast.engines import Outputs
from mlmfast.engines.base import ModelFiles
from mlmfast.models import Checkpoint, read_config, resolve
from mlmfast.scheduling import expand
from mlmfast.scorer import Scorer
from mlmfast.tokenization import load_tokenizer
from mlmfast.types import RowBatch, TargetOutputs


def value_of(kind: str, ids: tuple[int, ...], position: int, token: int) -> np.float32:
    """A log-probability that depends on everything it may depend on."""
    return np.float32(-(zlib.crc32(repr((kind, ids, position, token)).encode()) % 100_003) / 1000 - 0.01)


def log_prob(ids: tuple[int, ...], position: int, token: int) -> np.float32:
    return value_of("log_prob", ids, position, token)


class HashEngine:
    """Every output is a hash of the row (under causal: of the tokens before the target) and the target."""

    max_workers = None

    def __init__(self, max_length: int = 64, *, causal: bool = False) -> None:
        self.max_length = max_length
        self.max_batch_tokens = 256
        self.causal = causal
        self.num_calls = 0
        self.before_call: Callable[[list[tuple[int, ...]]], None] = lambda rows: None

    def prepare_thread(self) -> None:
        pass

    def describe(self) -> dict[str, Any]:
        return {"engine": "hash", "versions": {}}

    def score(self, batch: RowBatch, outputs: Outputs) -> TargetOutputs:
        self.num_calls += 1
        packed = expand(batch)
        ends = packed.cu_seqlens.tolist()
        rows = [tuple(packed.input_ids[a:b].tolist()) for a, b in pairwise(ends)]
        assert all(len(row) <= self.max_length + self.causal for row in rows)
        self.before_call(rows)
        keys = []
        for r, row in enumerate(rows):
            for t in range(batch.target_offsets[r], batch.target_offsets[r + 1]):
                position = int(batch.target_positions[t])
                seen = row[:position] if self.causal else row
                keys.append((seen, position, int(batch.target_ids[t])))

        def column(kind: str) -> Any:
            return np.array([value_of(kind, *key) for key in keys], dtype=np.float32)

        return TargetOutputs(
            log_prob=column("log_prob"),
            logit=column("logit") if outputs.logit else None,
            rank=(-column("rank")).astype(np.int32) if outputs.rank else None,
            entropy=column("entropy") if outputs.entropy else None,
            word_start_log_prob=np.array([word_start(s) for s, _, _ in keys], dtype=np.float32)
            if outputs.word_start
            else None,
        )


def word_start(seen: tuple[int, ...]) -> np.float32:
    return value_of("word_start", seen, 0, 0)


@cache
def files_of(name: str) -> ModelFiles:
    """A folder of tests/data/models, of which only the tokenizer counts here."""
    folder = MODELS / name
    config = read_config(folder)
    return ModelFiles(
        resolve(folder),
        config,
        Checkpoint.of(folder, allow_pickle=False),
        load_tokenizer(folder, config.model_type),
    )


def scorer_of(name: str = "bert", max_length: int = 64, **options: Any) -> Scorer:
    """A scorer whose engine hashes."""
    files = files_of(name)
    engine = HashEngine(max_length, causal=files.config.kind == "causal")
    return Scorer(files, engine, **{"workers": 1, **options})
