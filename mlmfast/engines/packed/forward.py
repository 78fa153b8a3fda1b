"""The encoder, from a layout to the states at the places: on a device what csrc/encoder.cc computes.

The first layer's projections are shared by the masked copies of a text; the last layer has keys and values
everywhere and the rest at the places alone. x is the residual stream in float32, y what a layer's products
read, normalised where the norms stand before them, in the precision of the products. P inputs of the pool,
n packed tokens, p places, H hidden_size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mlmfast.engines.packed.spec import EncoderSpec
from mlmfast.engines.packed.weights import EncoderWeights
from mlmfast.kernels.encoder_inputs import Layout, Norm
from mlmfast.kernels.encoder_ops import EncoderOperators

Trunk = tuple[Tensor, Tensor]
"""x float32[n, H] and y [n, H]: what the last layer reads."""


@dataclass(frozen=True)
class Queries:
    """Tokens that attend to their rows. int32 each."""

    index: Tensor
    """Among the packed tokens,"""
    row_start: Tensor
    """and so where their rows begin"""
    row_end: Tensor
    """and end."""
    longest_row: int

    @classmethod
    def all_tokens(cls, layout: Layout) -> Queries:
        starts, lengths = layout.row_starts, layout.row_starts.diff()
        return cls(
            index=torch.arange(layout.num_tokens, dtype=torch.int32, device=starts.device),
            row_start=starts[:-1].repeat_interleave(lengths, output_size=layout.num_tokens),
            row_end=starts[1:].repeat_interleave(lengths, output_size=layout.num_tokens),
            longest_row=layout.longest_row,
        )

    @classmethod
    def at_places(cls, layout: Layout) -> Queries:
        row = layout.place_row
        return cls(layout.place_token, layout.row_starts[row], layout.row_starts[row + 1], layout.longest_row)

    @cached_property
    def positions(self) -> Tensor:
        """In their rows."""
        return self.index - self.row_start


class Encoder:
    def __init__(
        self, spec: EncoderSpec, weights: EncoderWeights, operators: EncoderOperators, dtype: torch.dtype
    ) -> None:
        """dtype: of the matrix products."""
        self._spec = spec
        self._weights = weights
        self._operators = operators
        self._dtype = dtype

    def states(self, layout: Layout, trunk: Callable[[], Trunk] | None = None) -> Tensor:
        """float32[p, H], after the final norm if there is one. trunk: what gives self.trunk(layout), if not
        that. What is no longer read is let go at once: memory.bytes_per_token counts on it."""
        last = self._spec.num_layers - 1
        x, y = self.trunk(layout) if trunk is None else trunk()
        places = Queries.at_places(layout)
        context = self._attend_at_places(y, layout, places)
        del y
        x = self._operators.expand_rows(x, places.index)
        self._finish_layer(last, x, context)
        if self._weights.final_norm is not None:
            self._operators.add_norm(x, None, self._weights.final_norm, True, torch.float32)
        return x

    def trunk(self, layout: Layout) -> Trunk:
        """All layers but the last, whatever the places."""
        tokens = Queries.all_tokens(layout)
        index = self._operators.expand_index(layout) if layout.shares_inputs else None
        x, y = self._embed_pool(layout)
        x = self._expand(x, index)
        if self._spec.num_layers == 1:
            y = self._expand(y, index)
        for number in range(self._spec.num_layers - 1):
            qkv = self._weights.layers[number].qkv(y)
            del y
            if number == 0:
                qkv = self._expand(qkv, index)
            context = self._attend_everywhere(number, qkv, tokens)
            del qkv
            y = self._finish_layer(number, x, context)
            del context
        return x, y

    def _embed_pool(self, layout: Layout) -> tuple[Tensor, Tensor]:
        """x float32[P, H], y [P, H]."""
        x = self._operators.embed_inputs(layout, self._weights.tables)
        if self._weights.projection is not None:
            embedded = self._operators.add_norm(x, None, None, False, self._dtype)
            x = self._weights.projection(embedded).float()
        return x, self._operators.add_norm(x, None, self._input_norm(0), False, self._dtype)

    def _expand(self, pool: Tensor, index: Tensor | None) -> Tensor:
        """[P, C] to [n, C]; a pool that is not shared is the tokens'."""
        return pool if index is None else self._operators.expand_rows(pool, index)

    def _attend_everywhere(self, number: int, qkv: Tensor, tokens: Queries) -> Tensor:
        """The context [n, H] of queries, keys and values [n, 3 H]."""
        hidden = self._spec.hidden_size
        self._rotate(number, qkv[:, : 2 * hidden], tokens)
        return self._attend(number, qkv[:, :hidden], qkv[:, hidden:], tokens)

    def _attend_at_places(self, y: Tensor, layout: Layout, places: Queries) -> Tensor:
        """The context [p, H] of the last layer, which has keys and values of all tokens."""
        number, hidden = self._spec.num_layers - 1, self._spec.hidden_size
        layer = self._weights.layers[number]
        queries = layer.query(self._operators.expand_rows(y, places.index))
        key_value = layer.key_value(y)
        if self._spec.position == "rotary":
            self._rotate(number, queries, places)
            self._rotate(number, key_value[:, :hidden], Queries.all_tokens(layout))
        return self._attend(number, queries, key_value, places)

    def _input_norm(self, number: int) -> Norm | None:
        """What stands before the first products of a layer; nothing does after the last."""
        if self._spec.is_post_norm or number == self._spec.num_layers:
            return None
        return self._weights.layers[number].attention_norm

    def _rotate(self, number: int, vectors: Tensor, tokens: Queries) -> None:
        table = self._weights.rotary[number]
        if table is not None:
            self._operators.rotate(vectors, tokens.positions, table.cosines, table.sines)

    def _attend(self, number: int, queries: Tensor, key_value: Tensor, tokens: Queries) -> Tensor:
        """queries [*, H] of `tokens`, key_value [n, 2 H] to the context [*, H]."""
        window, hidden = self._spec.attention[number], self._spec.hidden_size
        return self._operators.attention(
            queries,
            key_value[:, :hidden],
            key_value[:, hidden:],
            tokens.index,
            tokens.row_start,
            tokens.row_end,
            self._spec.num_heads,
            window.half_window if window.is_local else None,
            tokens.longest_row,
        )

    def _finish_layer(self, number: int, x: Tensor, context: Tensor) -> Tensor:
        """x [*, H] after attention and the feed-forward network, in place; returns the next layer's y."""
        operators, layer, is_post = self._operators, self._weights.layers[number], self._spec.is_post_norm
        norm = layer.attention_norm if is_post else layer.mlp_norm
        y = operators.add_norm(x, layer.attention_output(context), norm, is_post, self._dtype)
        inner = operators.linear_activation(
            y, layer.mlp_input.weight, layer.mlp_input.bias, self._spec.activation, self._spec.gated
        )
        norm = layer.mlp_norm if is_post else self._input_norm(number + 1)
        return operators.add_norm(x, layer.mlp_output(inner), norm, is_post, self._dtype)
