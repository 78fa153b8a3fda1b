"""The bytes and FLOPs of the CUDA kernels by formula, against counting element by element."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import cuda_kernel_work
from cuda_kernel_work import ELEMENT_SIZES, gradient_work, num_spans, row_work, sweep_work
from kernel_ledger import Batch, Ledger
from kernel_work import Shape
from roofline import GPUS, Work

CSRC = Path(__file__).resolve().parent.parent / "csrc" / "cuda"
SHAPE = Shape(
    num_texts=3, text_length=6, hidden_size=8, num_heads=2, intermediate_size=5, vocab_size=11, half_window=1
)
SPANS = 3
TILE = 4

every_kind = pytest.mark.parametrize("kind", ELEMENT_SIZES)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_kernel_work, "TILE", TILE)


@pytest.fixture
def ledger() -> Ledger:
    return Batch(SHAPE).ledger


ROWS = range(SHAPE.rows)
CLASSES = range(SHAPE.vocab_size)
FEATURES = range(SHAPE.hidden_size)


def counted(ledger: Ledger, kind: str = "") -> Work:
    """Products of float32 are none of matrix units."""
    products = ledger.matrix_flops
    if kind == "float":
        return Work(ledger.bytes, 0, products + ledger.vector_flops)
    return Work(ledger.bytes, products, ledger.vector_flops)


def compute_logit(ledger: Ledger, kind: str, row: int, k: int) -> None:
    size = ELEMENT_SIZES[kind]
    ledger.load(size, "bias", k)
    for feature in FEATURES:
        ledger.load(size, "input", row, feature)
        ledger.load(size, "weight", k, feature)
    ledger.product(len(FEATURES))


def head_sums(ledger: Ledger, row: int) -> None:
    ledger.load(8, "offsets", row)
    ledger.load(8, "offsets", row + 1)
    ledger.load(4, "ids", row)
    ledger.store(4, "target_logits", row)
    for span in range(SPANS):
        for name in ("max", "rest", "rest_weighted", "padding"):
            ledger.store(4, "sums", span, row, name)


def greater(ledger: Ledger, row: int) -> None:
    ledger.load(8, "offsets", row)
    ledger.load(8, "offsets", row + 1)
    ledger.load(4, "target_logits", row)
    ledger.load(4, "rank", row)
    ledger.store(4, "rank", row)


def class_sums(ledger: Ledger, row: int) -> None:
    ledger.load(8, "target", row)
    ledger.store(4, "target_logits", row)
    for span in range(SPANS):
        for name in ("max", "rest", "rest_squared", "logits"):
            ledger.store(4, "sums", span, row, name)


def masked_sums(ledger: Ledger, row: int) -> None:
    ledger.load(4, "lse", row)
    for span in range(SPANS):
        for name in ("count", "log_probs"):
            ledger.store(4, "sums", span, row, name)


SWEEPS: dict[str, Callable[[Ledger, int], None]] = {
    "sum_head_classes": head_sums,
    "count_greater": greater,
    "sum_classes": class_sums,
    "sum_masked": masked_sums,
}


@every_kind
@pytest.mark.parametrize("name", SWEEPS)
def test_sweeps(ledger: Ledger, name: str, kind: str) -> None:
    for row in ROWS:
        for k in CLASSES:
            compute_logit(ledger, kind, row, k)
        SWEEPS[name](ledger, row)
    assert sweep_work(SHAPE, kind, SPANS)[f"{name}<{kind}>"] == counted(ledger, kind)


@every_kind
def test_gradients_of_logits(ledger: Ledger, kind: str) -> None:
    """Whole tiles of classes are written, but only the rows that there are."""
    for row in ROWS:
        for k in CLASSES:
            compute_logit(ledger, kind, row, k)
        ledger.load(8, "target", row)
        ledger.load(4, "grad_loss", row)
        for coefficient in ("lse", "A", "B", "C", "U", "D", "target_gradient"):
            ledger.load(4, coefficient, row)
        for k in range(-(-len(CLASSES) // TILE) * TILE):
            ledger.store(ELEMENT_SIZES[kind], "gradients", row, k)
            ledger.store(4, "bias_sums", row // TILE, k)
    assert gradient_work(SHAPE, kind)[f"compute_logit_gradients<{kind}>"] == counted(ledger, kind)


@every_kind
def test_gradient_of_the_input(ledger: Ledger, kind: str) -> None:
    for row in ROWS:
        for feature in FEATURES:
            for k in CLASSES:
                ledger.load(ELEMENT_SIZES[kind], "gradients", row, k)
                ledger.load(ELEMENT_SIZES[kind], "weight", k, feature)
            ledger.product(len(CLASSES))
            ledger.store(4, "grad_input", row, feature)
    assert gradient_work(SHAPE, kind)[f"multiply<{kind}, float, depth_inner>"] == counted(ledger, kind)


@every_kind
def test_gradient_of_the_weight(ledger: Ledger, kind: str) -> None:
    for k in CLASSES:
        for feature in FEATURES:
            for row in ROWS:
                ledger.load(ELEMENT_SIZES[kind], "gradients", row, k)
                ledger.load(ELEMENT_SIZES[kind], "input", row, feature)
            ledger.product(len(ROWS))
            ledger.store(ELEMENT_SIZES[kind], "grad_weight", k, feature)
    assert gradient_work(SHAPE, kind)[f"multiply<{kind}, {kind}, depth_outer>"] == counted(ledger, kind)


@every_kind
def test_gradient_of_the_bias(ledger: Ledger, kind: str) -> None:
    for k in CLASSES:
        for tile in range(-(-len(ROWS) // TILE)):
            _ = ledger.load(4, "bias_sums", tile, k) + 0.0
        ledger.store(ELEMENT_SIZES[kind], "grad_bias", k)
    assert gradient_work(SHAPE, kind)[f"add_bias_sums<{kind}>"] == counted(ledger)


def test_conversion(ledger: Ledger) -> None:
    for row in ROWS:
        for feature in FEATURES:
            ledger.load(4, "values", row, feature)
            ledger.store(2, "converted", row, feature)
    assert gradient_work(SHAPE, "bf16")["convert<bf16>"] == counted(ledger)
    assert "convert<float>" not in gradient_work(SHAPE, "float")


ROW_KERNELS = {  # float32 numbers of each span of a row, of a row; whether it has an int64, and offsets
    "join_head_sums": (4, 4 + 2, False, False),  # lse, entropy
    "finish_targets": (0, 4 + 1 + 1 + 2, False, True),  # sums, id, logit; log_prob, logit
    "join_class_sums": (4, 4 + 1, False, False),  # lse
    "finish_rows": (2, 4 + 1 + 1 + 7, True, False),  # sums, logit; loss, coefficients
}


@pytest.mark.parametrize("name", ROW_KERNELS)
def test_kernels_of_rows(ledger: Ledger, name: str) -> None:
    of_spans, of_row, has_target, has_offsets = ROW_KERNELS[name]
    for row in ROWS:
        for number in range(of_spans * SPANS):
            ledger.load(4, "spans", row, number)
        for number in range(of_row):
            ledger.load(4, "row", row, number)
        if has_target:
            ledger.load(8, "target", row)
        if has_offsets:
            ledger.load(8, "offsets", row)
            ledger.load(8, "offsets", row + 1)
    assert row_work(SHAPE, SPANS)[name] == counted(ledger)


@pytest.mark.parametrize(
    ("rows", "vocab_size", "expected"),
    [(1, 5, (1, 1)), (512, 30_522, (120, 239)), (1320, 250_002, (79, 94)), (20_000, 30_522, (6, 7))],
)
def test_spans(
    rows: int, vocab_size: int, expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand: 239 tiles of 128 classes and 4 of rows make 956 blocks. 132 multiprocessors want 1056, but 108
    only 864, and so their spans have two tiles."""
    monkeypatch.setattr(cuda_kernel_work, "TILE", 128)
    assert tuple(num_spans(rows, vocab_size, gpu) for gpu in GPUS) == expected


def test_sizes_are_those_of_the_sources() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in CSRC.glob("*.h"))
    assert "constexpr int kTile = 128;" in sources
    assert "kBlocksPerMultiprocessor = 8;" in sources
    for name, size in (
        ("ClassSums", cuda_kernel_work.SUMS),
        ("HeadSums", cuda_kernel_work.SUMS),
        ("MaskedSums", cuda_kernel_work.MASKED_SUMS),
        ("Coefficients", cuda_kernel_work.COEFFICIENTS),
    ):
        match = re.search(rf"struct (?:alignas\((\d+)\) )?{name} {{(.*?)\n}};", sources, re.DOTALL)
        assert match is not None, name
        numbers = sum(
            1 + line.count(",")
            for line in re.findall(r"^ *(?:float|int32_t) ([^;]*);", match[2], re.MULTILINE)
        )
        alignment = int(match[1] or 4)
        assert -(-4 * numbers // alignment) * alignment == size, name
