"""The bytes and FLOPs of each CUDA kernel at a stated shape, by formula.

Every row has one target. The kernels of the gradients take all classes at a time. The bias is of the type of
the layer.
"""

from __future__ import annotations

from kernel_work import LONG, NUMBER, Shape
from roofline import Gpu, Work

from mlmfast.kernels.triton.launch import divide_up

ELEMENT_SIZES = {"bf16": 2, "float": 4}
"""By the type's name in the kernels' names."""
TILE = 128
"""Rows and classes of a block's tile (tile.h)."""
BLOCKS_PER_MULTIPROCESSOR = 8
"""That a sweep is split into at least (class_spans in class_sweep.h)."""
SUMS, MASKED_SUMS, COEFFICIENTS = 16, 8, 28
"""Bytes of a row's: ClassSums and HeadSums, MaskedSums, Coefficients (rule_math.h, head_math.h)."""


def works(shape: Shape, gpu: Gpu) -> dict[str, Work]:
    """By the name of a kernel in cuda_resources."""
    spans = num_spans(shape.rows, shape.vocab_size, gpu)
    found = row_work(shape, spans)
    for kind in ELEMENT_SIZES:
        found |= sweep_work(shape, kind, spans) | gradient_work(shape, kind)
    return found


def num_spans(rows: int, vocab_size: int, gpu: Gpu) -> int:
    """Of the vocabulary, as class_spans divides it on this GPU."""
    tiles = divide_up(vocab_size, TILE)
    wanted = divide_up(BLOCKS_PER_MULTIPROCESSOR * gpu.multiprocessors, divide_up(rows, TILE))
    return divide_up(tiles, divide_up(tiles, min(wanted, tiles)))


def sweep_work(shape: Shape, kind: str, spans: int) -> dict[str, Work]:
    """The sweeps over the classes."""
    rows, layer = shape.rows, layer_bytes(shape, kind)
    numbers, offsets = NUMBER * rows, LONG * (rows + 1)
    bytes_of = {
        "sum_head_classes": layer + offsets + 2 * numbers + SUMS * spans * rows,
        "count_greater": layer + offsets + 3 * numbers,
        "sum_classes": layer + LONG * rows + numbers + SUMS * spans * rows,
        "sum_masked": layer + numbers + MASKED_SUMS * spans * rows,
    }
    return {f"{name}<{kind}>": product(count, shape, kind) for name, count in bytes_of.items()}


def gradient_work(shape: Shape, kind: str) -> dict[str, Work]:
    """Whose logits' gradients lie in memory, of whole tiles of classes."""
    rows, vocab, hidden, size = shape.rows, shape.vocab_size, shape.hidden_size, ELEMENT_SIZES[kind]
    row_tiles, padded_vocab = divide_up(rows, TILE), divide_up(vocab, TILE) * TILE
    of_rows = (LONG + NUMBER + COEFFICIENTS) * rows  # target, grad_loss, coefficients
    written = (size * rows + NUMBER * row_tiles) * padded_vocab
    of_input = size * (rows + hidden) * vocab + NUMBER * rows * hidden
    of_weight = size * (rows * vocab + (rows + vocab) * hidden)
    found = {
        f"compute_logit_gradients<{kind}>": product(
            layer_bytes(shape, kind) + of_rows + written, shape, kind
        ),
        f"multiply<{kind}, float, depth_inner>": product(of_input, shape, kind),
        f"multiply<{kind}, {kind}, depth_outer>": product(of_weight, shape, kind),
        f"add_bias_sums<{kind}>": Work((NUMBER * row_tiles + size) * vocab, vector_flops=row_tiles * vocab),
    }
    if size != NUMBER:
        found[f"convert<{kind}>"] = Work((NUMBER + size) * rows * hidden)
    return found


def row_work(shape: Shape, spans: int) -> dict[str, Work]:
    """The kernels with a thread for each row or target; all outputs asked for."""
    rows = shape.rows
    return {
        "join_head_sums": Work((SUMS * (spans + 1) + 2 * NUMBER) * rows),
        "finish_targets": Work((SUMS + 4 * NUMBER) * rows + LONG * (rows + 1)),
        "join_class_sums": Work((SUMS * (spans + 1) + NUMBER) * rows),
        "finish_rows": Work((LONG + SUMS + MASKED_SUMS * spans + 2 * NUMBER + COEFFICIENTS) * rows),
    }


def layer_bytes(shape: Shape, kind: str) -> int:
    """Of the hidden states, the weight and the bias."""
    rows, vocab = shape.rows, shape.vocab_size
    return ELEMENT_SIZES[kind] * ((rows + vocab) * shape.hidden_size + vocab)


def product(num_bytes: int, shape: Shape, kind: str) -> Work:
    """With as many FLOPs as all logits take: on matrix units in bfloat16, outside them in float32."""
    flops = 2 * shape.rows * shape.vocab_size * shape.hidden_size
    return Work(num_bytes, matrix_flops=flops) if kind == "bf16" else Work(num_bytes, vector_flops=flops)
