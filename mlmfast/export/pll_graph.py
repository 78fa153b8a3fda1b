"""A pll graph around a masked one: a loop over blocks of the sentence's masked rows."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper, parser

TOKENS_PER_BLOCK = 8192
"""Tokens of the rows that are in memory at once."""

BLOCK = """
agraph (int64 block, bool more) => (bool go_on, float[rows] block_log_probs) {
    go_on = Identity(more)
    first = Mul(block, rows_per_block)
    after = Add(first, rows_per_block)
    targets = Range(first, after, one)
    within = Min(targets, last_target)
    block_target_positions = Add(within, prefix)
    column = Unsqueeze(block_target_positions, axis_1)
    masked = Equal(column, positions)
    block_input_ids = Where(masked, mask_id, input_ids)
    shape = Shape(block_input_ids)
    block_attention_mask = ConstantOfShape<value = int64[1] {1}>(shape)
    block_target_rows = Range(zero, rows_per_block, one)
    block_target_ids = Gather(input_ids, block_target_positions)
}
"""
"""Before the masked graph's own nodes. Rows of the last block beyond the last target repeat it."""

BEFORE = """
agraph (int64[length] input_ids) => (int64 num_blocks) {
    input_shape = Shape(input_ids)
    length = Squeeze(input_shape)
    positions = Range(zero, length, one)
    num_targets = Sub(length, num_special)
    last_target = Sub(num_targets, one)
    fitting = Div(tokens_per_block, length)
    most_rows = Max(fitting, one)
    filling = Add(last_target, most_rows)
    full_blocks = Div(filling, most_rows)
    num_blocks = Max(full_blocks, one)
    spread = Add(last_target, num_blocks)
    even_rows = Div(spread, num_blocks)
    rows_per_block = Max(even_rows, one)
}
"""
"""num_blocks of rows_per_block rows, so that the last one is not padded much; at least one row of a sentence
without tokens, which is cut off again."""

AFTER = """
agraph (float[blocks, rows] blocks) => (float[targets] log_probs) {
    flat = Reshape(blocks, everything)
    end = Reshape(num_targets, everything)
    log_probs = Slice(flat, start, end)
}
"""


def pll_graph(masked: onnx.ModelProto, *, mask_id: int, prefix: int, suffix: int) -> onnx.ModelProto:
    """The graph of one sentence: input_ids int64[length] to log_probs float32[length - prefix - suffix],
    those of the tokens between the special ones, each from the row in which it alone is masked.

    Takes over the weights of `masked`, in memory or external.
    """
    scalars = {
        "zero": 0,
        "one": 1,
        "prefix": prefix,
        "num_special": prefix + suffix,
        "mask_id": mask_id,
        "tokens_per_block": TOKENS_PER_BLOCK,
    }
    vectors = {"axis_1": [1], "everything": [-1], "start": [0]}
    constants = [
        *(helper.make_tensor(name, TensorProto.INT64, [], [value]) for name, value in scalars.items()),
        *(helper.make_tensor(name, TensorProto.INT64, [1], value) for name, value in vectors.items()),
    ]
    block = parser.parse_graph(BLOCK)
    inputs = {value.name: f"block_{value.name}" for value in masked.graph.input}
    names = {**inputs, "log_probs": "block_log_probs"}
    for node in masked.graph.node:
        node.input[:] = [names.get(name, f"masked.{name}" if name else "") for name in node.input]
        node.output[:] = [names.get(name, f"masked.{name}" if name else "") for name in node.output]
        block.node.append(node)
    for weight in masked.graph.initializer:
        weight.name = f"masked.{weight.name}"
    before, after = parser.parse_graph(BEFORE), parser.parse_graph(AFTER)
    loop = helper.make_node("Loop", ["num_blocks", ""], ["blocks"], body=block)
    graph = helper.make_graph(
        [*before.node, loop, *after.node],
        "pll",
        before.input,
        after.output,
        [*constants, *masked.graph.initializer],
    )
    return helper.make_model(
        graph,
        opset_imports=masked.opset_import,
        ir_version=masked.ir_version,
        producer_name=masked.producer_name,
        producer_version=masked.producer_version,
    )
