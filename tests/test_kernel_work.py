"""The bytes and FLOPs of the Triton kernels by formula, against counting element by element."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from kernel_ledger import Batch, Value, erf, exp, normalise
from kernel_work import STATED, Shape, attention_work, encoder_work, logit_work, num_splits
from roofline import GPUS, Bound, Gpu, Work, bound

from mlmfast.kernels.triton import launch
from mlmfast.kernels.triton.launch import Sweep, TileShape, tile_shape

SMALL = Shape(
    num_texts=3, text_length=6, hidden_size=8, num_heads=2, intermediate_size=5, vocab_size=11, half_window=1
)
HALF = 2
A100, H200 = GPUS


@pytest.fixture
def batch() -> Batch:
    return Batch(SMALL)


def counted(batch: Batch) -> Work:
    ledger = batch.ledger
    return Work(ledger.bytes, ledger.matrix_flops, ledger.vector_flops)


def test_shared_embeddings(batch: Batch) -> None:
    ledger, shape = batch.ledger, batch.shape
    inputs = [(text, at, None) for text in range(shape.num_texts) for at in range(shape.text_length)]
    for index, (text, at, mask) in enumerate(
        [*inputs, *((text, at, row) for row, (text, at) in enumerate(batch.rows))]
    ):
        batch.offsets("text_offsets", shape.num_texts)
        if mask is None:
            ledger.load(4, "text_ids", index)
        else:
            batch.offsets("mask_offsets", len(batch.rows))
            ledger.load(4, "mask_positions", mask)
            assert batch.text_of(mask) == text
        normalise(batch.embed(HALF, text, at, mask is not None, scaled=False), ledger)
        for column in range(shape.hidden_size):
            ledger.store(4, "x", index, column)
    assert counted(batch) == encoder_work(SMALL, HALF)["embed-shared-8"]


def test_packed_embeddings(batch: Batch) -> None:
    ledger = batch.ledger
    for token, (row, at) in enumerate(batch.tokens):
        ledger.load(4, "index", token)
        ledger.load(4, "table_positions", token)
        ledger.load(4, "row_scale", row)
        batch.offsets("row_starts", len(batch.rows))
        text = batch.text_of(row)
        ledger.load(4, "text_ids", text * batch.shape.text_length + at)
        batch.embed(HALF, text, at, batch.rows[row][1] == at, scaled=True)
        for column in range(batch.shape.hidden_size):
            ledger.store(4, "x", token, column)
    assert counted(batch) == encoder_work(SMALL, HALF)["embed-packed-8"]


def test_expansion(batch: Batch) -> None:
    ledger, shape = batch.ledger, batch.shape
    for token, (row, at) in enumerate(batch.tokens):
        text, masked = batch.rows[row]
        ledger.load(4, "index", token)
        for column in range(3 * shape.hidden_size):
            source = ("mask", row) if at == masked else ("token", text * shape.text_length + at)
            ledger.load(HALF, *source, column)
            ledger.store(HALF, "output", token, column)
    assert counted(batch) == encoder_work(SMALL, HALF)["expand"]


def test_indices(batch: Batch) -> None:
    for token, (row, _) in enumerate(batch.tokens):
        batch.offsets("row_starts", len(batch.rows))
        batch.text_of(row)
        batch.ledger.store(4, "index", token)
    assert counted(batch) == encoder_work(SMALL, HALF)["text-index"]
    masks = Batch(SMALL)
    for mask in range(len(masks.rows)):
        masks.offsets("mask_offsets", len(masks.rows))
        masks.offsets("row_starts", len(masks.rows))
        masks.ledger.load(4, "mask_positions", mask)
        masks.ledger.store(4, "index", mask)
    assert counted(masks) == encoder_work(SMALL, HALF)["mask-index"]


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_addition_and_norm(batch: Batch, placement: str) -> None:
    ledger = batch.ledger
    for token in range(len(batch.tokens)):
        columns = range(batch.shape.hidden_size)
        row = [ledger.load(4, "x", token, c) + ledger.load(HALF, "delta", token, c) for c in columns]
        normalise(row, ledger)
        for column in columns:
            ledger.store(4, "x", token, column)
            ledger.store(HALF, "y", token, column)
    assert counted(batch) == encoder_work(SMALL, HALF)[f"add-norm-{placement}-8"]


ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "relu": lambda x: x < 0.0,
    "silu": lambda x: x / (1.0 + exp(-x)),
    "gelu": lambda x: 0.5 * x * (1.0 + erf(x * 0.7)),
    "gelu_tanh": lambda x: x / (1.0 + exp(-1.6 * (x + 0.04 * x * x * x))),
}


@pytest.mark.parametrize("is_gated", [False, True], ids=["plain", "gated"])
@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activations(batch: Batch, kind: str, is_gated: bool) -> None:
    ledger, width = batch.ledger, batch.shape.intermediate_size
    for token in range(len(batch.tokens)):
        for column in range(width):
            y = ACTIVATIONS[kind](ledger.load(HALF, "inner", token, column))
            if is_gated:
                y = y * ledger.load(HALF, "inner", token, width + column)
            ledger.store(HALF, "output", token, column)
    assert counted(batch) == encoder_work(SMALL, HALF)[f"{kind}{'-gated' if is_gated else ''}"]


def test_rotation(batch: Batch) -> None:
    ledger, half = batch.ledger, batch.shape.hidden_size // batch.shape.num_heads // 2
    for token, (_, at) in enumerate(batch.tokens):
        ledger.load(4, "positions", token)
        for head in range(2 * batch.shape.num_heads):  # of queries, then of keys
            for i in range(half):
                cosine, sine = ledger.load(4, "cosines", at, i), ledger.load(4, "sines", at, i)
                first = ledger.load(HALF, "vectors", token, head, i)
                second = ledger.load(HALF, "vectors", token, head, half + i)
                _ = first * cosine - second * sine, second * cosine + first * sine
                ledger.store(HALF, "vectors", token, head, i)
                ledger.store(HALF, "vectors", token, head, half + i)
    assert counted(batch) == encoder_work(SMALL, HALF)["rotate-4"]


@pytest.mark.parametrize("half_window", [1, 2, 5, 64])
@pytest.mark.parametrize("is_local", [False, True], ids=["global", "local"])
@pytest.mark.parametrize("for_places", [False, True], ids=["sequences", "places"])
def test_attention(half_window: int, is_local: bool, for_places: bool) -> None:
    shape = Shape(**{**vars(SMALL), "half_window": half_window})
    batch, head_size = Batch(shape), shape.hidden_size // shape.num_heads
    ledger = batch.ledger
    queries = [(row, at) for row, at in batch.tokens if not for_places or batch.rows[row][1] == at]
    for query, (row, at) in enumerate(queries):
        for bound_of in ("key_start", "key_end", *(["query_token"] if is_local else [])):
            ledger.load(4, bound_of, query)
        for head in range(shape.num_heads):
            for i in range(head_size):
                ledger.load(HALF, "queries", query, head, i)
                ledger.store(HALF, "output", query, head, i)
            for key in range(shape.text_length):
                if is_local and abs(key - at) > half_window:
                    continue
                for i in range(head_size):
                    ledger.load(HALF, "keys", row, key, head, i)
                    ledger.load(HALF, "values", row, key, head, i)
                ledger.product(head_size)  # a score
                ledger.product(head_size)  # its weight times a value, added to each sum
    name = f"attention{'-places' if for_places else ''}-{head_size}{'-local' if is_local else ''}"
    assert counted(batch) == attention_work(shape, HALF)[name]


TILE = TileShape(8, 4, 64, num_stages=1, statistics_warps=1, num_warps=1)
SPLITS = 3
SWEEPS = {  # what is read, and written, of every row and, by split, besides the layer
    "statistics": ({"target": 8}, {"partial": (4, 5)}, {}),
    "tail": ({"lse": 4}, {"partial": (4, 2)}, {}),
    "target-sweep": ({"key": 8}, {"partial": (4, 4), "first_target": (4, 1)}, {"target_logit": 4}),
    "rank": ({"row": 8, "id": 8, "target_logit": 4}, {"partial": (4, 1)}, {}),
}


@pytest.mark.parametrize("name", SWEEPS)
def test_sweeps_of_the_vocabulary(batch: Batch, name: str) -> None:
    ledger, shape = batch.ledger, batch.shape
    of_rows, of_splits, written = SWEEPS[name]
    for row in range(shape.rows):
        count_logits(batch, row)
        for array, size in of_rows.items():
            ledger.load(size, array, row)
        for array, (size, number) in of_splits.items():
            for index in range(SPLITS * number):
                ledger.store(size, array, index, row)
        for array, size in written.items():
            ledger.store(size, array, row)
    assert counted(batch) == logit_work(shape, HALF, TILE, SPLITS)[name]


def count_logits(batch: Batch, row: int) -> None:
    """The row's logits from its hidden state."""
    ledger, shape = batch.ledger, batch.shape
    for word in range(shape.vocab_size):
        ledger.load(HALF, "bias", word)
        for feature in range(shape.hidden_size):
            ledger.load(HALF, "input", row, feature)
            ledger.load(HALF, "weight", word, feature)
        ledger.product(shape.hidden_size)


def test_gradient_of_logits(batch: Batch) -> None:
    """Tiles are written whole, past the vocabulary too."""
    ledger, shape = batch.ledger, batch.shape
    for row in range(shape.rows):
        count_logits(batch, row)
        ledger.load(8, "target", row)
        for number in ("lse", "A", "B", "U", "D", "target gradient", "grad_loss"):
            ledger.load(4, number, row)
        for word in range(-(-shape.vocab_size // TILE.classes) * TILE.classes):
            ledger.store(HALF, "gradient", row, word)
            ledger.store(4, "bias_sums", row // TILE.rows, word)
    assert counted(batch) == logit_work(shape, HALF, TILE, SPLITS)["gradient"]


ROW_KERNELS = {  # float32 numbers of each split of a row, then of a row: read or written
    "coefficients-log": (5, 0, 1 + 7),
    "add-tail": (2 + 1, 1 + 3, 1 + 3),
    "row": (4, 0, 3 + 2),
    "score-log": (0, 3, 1),
    "score-power": (0, 4, 1),
}
READS_AN_INT64 = ("coefficients-log", "score-log", "score-power")


@pytest.mark.parametrize("name", ROW_KERNELS)
def test_kernels_that_see_no_logits(batch: Batch, name: str) -> None:
    ledger = batch.ledger
    of_splits, read, written = ROW_KERNELS[name]
    for row in range(batch.shape.rows):
        for index in range(of_splits * SPLITS):
            ledger.load(4, "partial", index, row)
        for index in range(read):
            ledger.load(4, "read", index, row)
        for index in range(written):
            ledger.store(4, "written", index, row)
        if name in READS_AN_INT64:
            ledger.load(8, "target", row)
    assert counted(batch) == logit_work(batch.shape, HALF, TILE, SPLITS)[name]


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_splits_are_those_of_a_launch(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "num_multiprocessors", lambda _: gpu.multiprocessors)
    for rows in (1, 129, 512, 20000):
        input, weight = torch.empty(rows, 1), torch.empty(STATED.vocab_size, 1)
        tile = tile_shape(torch.float32, None)
        assert num_splits(rows, STATED.vocab_size, tile, gpu) == Sweep.of(input, weight).num_splits


def test_the_bound_is_the_longest_of_three() -> None:
    second = Work(bytes=4_800_000_000_000, matrix_flops=989_000_000_000_000, vector_flops=67_000_000_000_000)
    half, float32 = torch.bfloat16, torch.float32
    assert bound(Work(second.bytes, 5, 5), half, H200) == Bound(1.0, "memory")
    assert bound(Work(5, 2 * second.matrix_flops, 5), half, H200) == Bound(2.0, "matrix units")
    assert bound(Work(5, 5, 3 * second.vector_flops), half, H200) == Bound(3.0, "arithmetic")
    assert bound(Work(0, 156_000_000_000_000), float32, A100) == Bound(3.0, "matrix units")
    assert bound(Work(0, 0, 0), half, A100).seconds == 0
