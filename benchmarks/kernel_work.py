"""The bytes and FLOPs of each Triton kernel at a stated shape, by formula.

FLOPs of elementwise kernels are those of the formula each computes, read from left to right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from roofline import Gpu, Work

from mlmfast.kernels.triton.launch import PROGRAMS_PER_MULTIPROCESSOR, TileShape, divide_up, tile_shape

NUMBER = 4
"""Bytes of a float32 or int32; half tensors have element_size."""
LONG = 8
NUM_TOKEN_TYPES = 1
"""Of the rows of that table, those that the batch reads."""
NORM_FLOPS, NORM_ROW_FLOPS = 7, 4
"""Of layer normalisation: of every element, and of every row besides (two divisions, eps, rsqrt)."""
ACTIVATION_FLOPS = {"relu": 1, "silu": 4, "gelu": 5, "gelu_tanh": 8}


@dataclass(frozen=True)
class Shape:
    """One batch of a PLL: each text once for every token but the two special ones, which is masked there.

    All tokens of the texts are different words, and of one type. Letters as in encoder_inputs.
    """

    num_texts: int
    text_length: int
    hidden_size: int
    num_heads: int
    intermediate_size: int
    vocab_size: int
    half_window: int

    @property
    def text_tokens(self) -> int:
        """N"""
        return self.num_texts * self.text_length

    @property
    def rows(self) -> int:
        """b, and as many masks, places and targets."""
        return self.num_texts * (self.text_length - 2)

    @property
    def tokens(self) -> int:
        """n"""
        return self.rows * self.text_length

    @property
    def pool(self) -> int:
        """P, where inputs are shared."""
        return self.text_tokens + self.rows


STATED = Shape(
    num_texts=18,
    text_length=32,
    hidden_size=768,
    num_heads=12,
    intermediate_size=3072,
    vocab_size=30522,
    half_window=64,
)
"""BERT-base over 18 texts of 32 tokens, two special ones counted: 17280 tokens in 540 rows."""
MODELS = {
    "BERT-base": STATED,
    "6x384": replace(STATED, hidden_size=384, intermediate_size=1536),
    "BERT-large": replace(STATED, hidden_size=1024, num_heads=16, intermediate_size=4096),
}
VOCABULARIES = (STATED.vocab_size, 250_002)
"""BERT's and XLM-R's."""
TEXTS = {13: 120, STATED.text_length: STATED.num_texts, 64: 4, 256: 1}
"""By their length how many: as many tokens in rows as STATED has, or else the fewest."""
MODEL_SHAPES = {
    replace(model, num_texts=count, text_length=length, vocab_size=vocab_size): name
    for name, model in MODELS.items()
    for vocab_size in VOCABULARIES
    for length, count in TEXTS.items()
}
"""And the model that each is of."""
HEAD_SHAPES = {
    replace(
        STATED,
        num_texts=count,
        text_length=length,
        hidden_size=STATED.num_heads * head_size,
        intermediate_size=4 * STATED.num_heads * head_size,
    ): f"heads of {head_size}"
    for head_size in (12, 80, 128, 256)
    for length, count in TEXTS.items()
}
"""For attention alone, over heads of sizes that none of MODELS has."""
SHAPES = MODEL_SHAPES | HEAD_SHAPES


def works(shape: Shape, dtype: torch.dtype, gpu: Gpu) -> dict[str, Work]:
    """By the name of a variant; variants of other sizes than the shape's have none."""
    size = dtype.itemsize
    attention = attention_work(shape, size)
    if shape in HEAD_SHAPES:
        return attention
    tile = tile_shape(dtype, gpu.capability)
    splits = num_splits(shape.rows, shape.vocab_size, tile, gpu)
    return encoder_work(shape, size) | attention | logit_work(shape, size, tile, splits)


def encoder_work(shape: Shape, element_size: int) -> dict[str, Work]:
    """By the name of a variant in encoder_kernel_variants."""
    n, b, hidden, half = shape.tokens, shape.rows, shape.hidden_size, element_size
    texts = NUMBER * (2 * shape.text_tokens + shape.num_texts + 1 + b)  # ids, types, offsets, row_text
    masks = NUMBER * (b + b + 1)
    table_rows = shape.text_tokens + 1 + NUM_TOKEN_TYPES + shape.text_length
    norm = 2 * NUMBER * hidden
    starts = NUMBER * (b + 1)
    works = {
        f"embed-shared-{hidden}": Work(
            texts + masks + half * table_rows * hidden + norm + NUMBER * shape.pool * hidden,
            vector_flops=shape.pool * ((2 + NORM_FLOPS) * hidden + NORM_ROW_FLOPS),
        ),
        # With row_scale, index and table_positions, without a norm.
        f"embed-packed-{hidden}": Work(
            texts + starts + NUMBER * (b + 2 * n) + half * table_rows * hidden + NUMBER * n * hidden,
            vector_flops=n * 3 * hidden,
        ),
        "expand": Work(half * (shape.pool + n) * 3 * hidden + NUMBER * n),  # queries, keys and values
        "text-index": Work(starts + NUMBER * (b + shape.num_texts + 1 + n)),
        "mask-index": Work(masks + starts + NUMBER * b),
        f"rotate-{hidden // shape.num_heads}": Work(  # queries and keys
            2 * half * n * 2 * hidden + NUMBER * (n + shape.text_length * hidden // shape.num_heads),
            vector_flops=6 * n * hidden,
        ),
    }
    for placement in ("post", "pre"):
        works[f"add-norm-{placement}-{hidden}"] = Work(
            2 * (NUMBER + half) * n * hidden + norm,
            vector_flops=n * ((1 + NORM_FLOPS) * hidden + NORM_ROW_FLOPS),
        )
    values = n * shape.intermediate_size
    for kind, flops in ACTIVATION_FLOPS.items():
        works[kind] = Work(2 * half * values, vector_flops=flops * values)
        works[f"{kind}-gated"] = Work(3 * half * values, vector_flops=(flops + 1) * values)
    return works


def attention_work(shape: Shape, element_size: int) -> dict[str, Work]:
    """By the name of a variant in attention_kernel_variants."""
    length, window = shape.text_length, min(shape.half_window, shape.text_length - 1)
    local_pairs = length * (2 * window + 1) - window * (window + 1)  # of a query and a key, in one row
    # The places of a text's rows are all of its positions but the special ones, each in a row of its own.
    place_keys = [min(i + window, length - 1) - max(i - window, 0) + 1 for i in range(1, length - 1)]
    queries = {"attention": shape.tokens, "attention-places": shape.rows}
    pairs = {
        "attention": shape.rows * length**2,
        "attention-local": shape.rows * local_pairs,
        "attention-places": shape.rows * length,
        "attention-places-local": shape.num_texts * sum(place_keys),
    }
    # Keys that no place's window reaches are read by nobody.
    keys = dict.fromkeys(pairs, shape.tokens) | {"attention-places-local": pairs["attention-places-local"]}
    works = {}
    for kind, count in queries.items():
        for window_kind, num_bounds in (("", 2), ("-local", 3)):
            name = kind + window_kind
            num_vectors = 2 * count + 2 * keys[name]  # queries and outputs, keys and values
            works[f"{kind}-{shape.hidden_size // shape.num_heads}{window_kind}"] = Work(
                element_size * num_vectors * shape.hidden_size + NUMBER * num_bounds * count,
                matrix_flops=4 * pairs[name] * shape.hidden_size,
            )
    return works


def num_splits(rows: int, vocab_size: int, tile: TileShape, gpu: Gpu) -> int:
    """Of the vocabulary, as launch.Sweep divides it on this GPU."""
    tiles = divide_up(vocab_size, tile.classes)
    wanted = divide_up(PROGRAMS_PER_MULTIPROCESSOR * gpu.multiprocessors, divide_up(rows, tile.rows))
    return divide_up(tiles, divide_up(tiles, min(tiles, wanted)))


def logit_work(shape: Shape, element_size: int, tile: TileShape, splits: int) -> dict[str, Work]:
    """By the name of a variant in rule_kernel_variants and score_kernel_variants; a target to every row."""
    rows, vocab, hidden = shape.rows, shape.vocab_size, shape.hidden_size
    row_numbers, partial = NUMBER * rows, NUMBER * rows * splits
    targets = LONG * rows
    layer = element_size * ((rows + vocab) * hidden + vocab)
    flops = 2 * rows * vocab * hidden
    padded_vocab = divide_up(vocab, tile.classes) * tile.classes
    gradient = padded_vocab * (element_size * rows + NUMBER * divide_up(rows, tile.rows))
    sweep = Work(layer + targets + 5 * partial + row_numbers, flops)
    return {
        "statistics": Work(layer + targets + 5 * partial, flops),
        "tail": Work(layer + row_numbers + 2 * partial, flops),
        "gradient": Work(layer + targets + 7 * row_numbers + gradient, flops),
        **{
            f"coefficients-{rule}": Work(5 * partial + targets + 8 * row_numbers)
            for rule in ("log", "power", "pseudospherical")
        },
        "add-tail": Work(3 * partial + 8 * row_numbers),
        "target-sweep": sweep,
        "target-sweep-entropy": sweep,
        "target-sweep-everything": sweep,
        "rank": Work(layer + 2 * targets + row_numbers + partial, flops),
        "row": Work(4 * partial + 5 * row_numbers),
        "score-log": Work(targets + 4 * row_numbers),
        "score-power": Work(targets + 5 * row_numbers),
        "score-pseudospherical": Work(targets + 5 * row_numbers),
    }
