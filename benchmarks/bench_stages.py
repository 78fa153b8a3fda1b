"""Our own stages on fixed inputs, one thread: `python -m pytest benchmarks --benchmark-only`.

BLiMP's sample, acceptable and unacceptable sentences, so that pairs share masked rows; the embedded model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np
import pytest
import torch
from texts import BLIMP, read_pairs

import mlmfast
from mlmfast.engines import Outputs
from mlmfast.kernels.head import Head
from mlmfast.scheduling import Masking, expand, mask_rows, pack, row_batch, share_rows
from mlmfast.types import Int64Array, MaskedRows, RowBatch, TokenizedTexts

MAX_BATCH_TOKENS = 2048
HEAD_SHAPE = (128, 384, 20_000)
"""Targets, hidden size, vocabulary."""

Timed = Callable[..., Any]


@dataclass(frozen=True)
class Stages:
    """What each stage takes, made by the one before it."""

    sentences: list[str]
    texts: TokenizedTexts
    slots: Int64Array
    rows: MaskedRows
    shared: MaskedRows
    batches: list[Int64Array]
    mask_id: int

    def batch(self) -> RowBatch:
        """The batch in the middle, where rows are of middling length."""
        return row_batch(self.texts, self.shared, self.batches[len(self.batches) // 2], self.mask_id)[0]


@cache
def scorer(precision: str) -> mlmfast.Scorer:
    return mlmfast.load(engine="torch", precision=precision, workers=1)


@pytest.fixture(scope="module")
def stages() -> Stages:
    torch.set_num_threads(1)
    sentences = [pair[side] for pair in read_pairs(BLIMP) for side in ("good", "bad")]
    tokenizer = scorer("float32").files.tokenizer
    texts = tokenizer.encode(sentences)
    slots = np.where(texts.word_ids != -1, np.arange(len(texts.word_ids)), -1)
    rows = mask_rows(texts, slots, Masking.parse("original"))
    mask_id = cast(int, tokenizer.special.mask_id)
    shared = share_rows(texts, rows, mask_id)
    batches = pack(texts.lengths[shared.text_index], MAX_BATCH_TOKENS)
    return Stages(sentences, texts, slots, rows, shared, batches, mask_id)


def test_tokenize(benchmark: Timed, stages: Stages) -> None:
    texts = benchmark(scorer("float32").files.tokenizer.encode, stages.sentences)
    assert texts.num_texts == len(stages.sentences)


def test_mask(benchmark: Timed, stages: Stages) -> None:
    rows = benchmark(mask_rows, stages.texts, stages.slots, Masking.parse("original"))
    assert rows.num_rows == (stages.texts.word_ids != -1).sum()


def test_share(benchmark: Timed, stages: Stages) -> None:
    shared = benchmark(share_rows, stages.texts, stages.rows, stages.mask_id)
    assert shared.num_rows < stages.rows.num_rows


def test_pack(benchmark: Timed, stages: Stages) -> None:
    batches = benchmark(pack, stages.texts.lengths[stages.shared.text_index], MAX_BATCH_TOKENS)
    assert sum(map(len, batches)) == stages.shared.num_rows


def test_row_batch(benchmark: Timed, stages: Stages) -> None:
    batch = benchmark(stages.batch)
    assert batch.num_rows == len(stages.batches[len(stages.batches) // 2])


def test_expand(benchmark: Timed, stages: Stages) -> None:
    expanded = benchmark(expand, stages.batch())
    assert (expanded.input_ids == stages.mask_id).sum() == len(expanded.cu_seqlens) - 1


def test_head_kernel(benchmark: Timed) -> None:
    num_targets, hidden_size, vocab_size = HEAD_SHAPE
    rng = np.random.default_rng(0)
    head = Head(rng.standard_normal((vocab_size, hidden_size), dtype=np.float32), None)
    hidden = rng.standard_normal((num_targets, hidden_size), dtype=np.float32)
    ids = rng.integers(0, vocab_size, num_targets).astype(np.int32)
    found = benchmark(head.score, hidden, ids, np.arange(num_targets + 1))
    assert found.log_prob.shape == (num_targets,)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_torch_batch(benchmark: Timed, stages: Stages, precision: str) -> None:
    batch = stages.batch()
    found = benchmark(scorer(precision).engine.score, batch, Outputs())
    assert np.isfinite(found.log_prob).all()
