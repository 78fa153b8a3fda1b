"""An encoder's weights on the device, in the precision of its matrix products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from mlmfast.engines.packed.spec import EncoderSpec
from mlmfast.kernels.encoder_inputs import EmbeddingTables, Norm
from mlmfast.kernels.encoder_torch import linear

StoredTensors = Mapping[str, Sequence[tuple[NDArray[Any], str] | None]]
"""`tensors` of _core.read_encoder: by role and layer an array and the name of its dtype."""
BFLOAT16 = "bfloat16"
"""Such tensors come as uint16, which numpy has in its stead."""


@dataclass(frozen=True)
class Linear:
    """x W^T + b, in the dtype of W."""

    weight: Tensor
    """[outputs, inputs]"""
    bias: Tensor | None
    """[outputs]"""

    def __call__(self, x: Tensor) -> Tensor:
        """x [rows, inputs] to [rows, outputs]."""
        return linear(x, self.weight, self.bias)

    def outputs(self, first: int, last: int | None = None) -> Linear:
        """The layer of these outputs alone, on the same memory."""
        chosen = slice(first, last)
        return Linear(self.weight[chosen], None if self.bias is None else self.bias[chosen])


@dataclass(frozen=True)
class Layer:
    attention_norm: Norm | None
    qkv: Linear
    """Query, key and value, [3 H, H]."""
    query: Linear
    """Its first H outputs,"""
    key_value: Linear
    """and the others."""
    attention_output: Linear
    mlp_norm: Norm
    mlp_input: Linear
    """[I, H]; gated [2 I, H], the gate last."""
    mlp_output: Linear


@dataclass(frozen=True)
class RotaryTable:
    cosines: Tensor
    """float32[max_length, d/2]"""
    sines: Tensor


@dataclass(frozen=True)
class VocabularyHead:
    dense: Linear
    """[E, H], float32: the head sees few rows, and no later layer averages its errors away."""
    norm: Norm
    decoder_weight: Tensor
    """[V, E]"""
    decoder_bias: Tensor | None
    """float32[V]"""


@dataclass(frozen=True)
class EncoderWeights:
    tables: EmbeddingTables
    projection: Linear | None
    layers: tuple[Layer, ...]
    """One of each layer, the same one where they are shared."""
    rotary: tuple[RotaryTable | None, ...]
    """Of each layer; None where positions are not rotary."""
    final_norm: Norm | None
    head: VocabularyHead | Linear
    """A student's is float32 [1, H]."""


class WeightReader:
    """Tensors by role, brought to the device in the dtype asked for, or else the checkpoint's."""

    def __init__(self, tensors: StoredTensors, spec: EncoderSpec, device: torch.device) -> None:
        self._tensors = tensors
        self._spec = spec
        self._device = device

    def has(self, role: str, layer: int = 0) -> bool:
        return role in self._tensors and self._tensors[role][layer] is not None

    def is_one_tensor(self, role: str, other: str) -> bool:
        """Whether two roles of no layer are played by one tensor."""
        return self._tensors[role][0] is self._tensors[other][0]

    def tensor(self, role: str, dtype: torch.dtype | None = None, layer: int = 0) -> Tensor:
        found = self._tensors[role][layer]
        assert found is not None
        array, name = found
        stored = torch.from_numpy(array)
        if name == BFLOAT16:
            stored = stored.view(torch.bfloat16)
        return stored.to(self._device, dtype)

    def norm(self, role: str, layer: int = 0) -> Norm | None:
        """None where the model has no such norm."""
        if not self.has(f"{role}_weight", layer):
            return None
        weight, bias = f"{role}_weight", f"{role}_bias"
        return Norm(
            weight=self.tensor(weight, torch.float32, layer),
            bias=self.tensor(bias, torch.float32, layer) if self.has(bias, layer) else None,
            eps=self._spec.norm_eps,
        )

    def linear(self, roles: Sequence[str], dtype: torch.dtype, layer: int = 0) -> Linear:
        """The layers of all roles as one, their outputs side by side."""
        weights, biases = [f"{role}_weight" for role in roles], [f"{role}_bias" for role in roles]
        has_bias = self.has(biases[0], layer)
        return Linear(
            weight=torch.cat([self.tensor(weight, dtype, layer) for weight in weights]),
            bias=torch.cat([self.tensor(bias, dtype, layer) for bias in biases]) if has_bias else None,
        )


def read_weights(
    tensors: StoredTensors, spec: EncoderSpec, dtype: torch.dtype, device: torch.device
) -> EncoderWeights:
    """Everything an encoder of this spec has, its matrices in `dtype`."""
    reader = WeightReader(tensors, spec, device)
    is_absolute = spec.position == "absolute"
    tables = EmbeddingTables(
        word=reader.tensor("word_embeddings"),
        position=reader.tensor("position_embeddings") if is_absolute else None,
        token_type=reader.tensor("token_type_embeddings") if reader.has("token_type_embeddings") else None,
        position_offset=spec.position_offset,
        dropout_id=spec.mask_token_id,
        norm=reader.norm("embedding_norm"),
    )
    projection = reader.linear(["embedding_projection"], dtype) if spec.embedding_projection else None
    num_distinct = 1 if spec.shared_layers else spec.num_layers
    layers = tuple(_layer(reader, spec, dtype, index) for index in range(num_distinct))
    return EncoderWeights(
        tables=tables,
        projection=projection,
        layers=layers * spec.num_layers if spec.shared_layers else layers,
        rotary=_rotary_tables(reader, spec, device),
        final_norm=reader.norm("final_norm"),
        head=_head(reader, spec, tables.word, dtype),
    )


def _layer(reader: WeightReader, spec: EncoderSpec, dtype: torch.dtype, index: int) -> Layer:
    mlp_norm = reader.norm("mlp_norm", index)
    assert mlp_norm is not None
    qkv = reader.linear(["query", "key", "value"], dtype, index)
    return Layer(
        attention_norm=reader.norm("attention_norm", index),
        qkv=qkv,
        query=qkv.outputs(0, spec.hidden_size),
        key_value=qkv.outputs(spec.hidden_size),
        attention_output=reader.linear(["attention_output"], dtype, index),
        mlp_norm=mlp_norm,
        mlp_input=reader.linear(["mlp_input", "mlp_gate"] if spec.gated else ["mlp_input"], dtype, index),
        mlp_output=reader.linear(["mlp_output"], dtype, index),
    )


def _rotary_tables(
    reader: WeightReader, spec: EncoderSpec, device: torch.device
) -> tuple[RotaryTable | None, ...]:
    """Angles in float64; layers of one base share a table."""
    if spec.position != "rotary":
        return (None,) * spec.num_layers
    tables: dict[float, RotaryTable] = {}
    for window in spec.attention:
        if window.rope_theta in tables:
            continue
        if reader.has("inverse_frequencies"):
            frequencies = reader.tensor("inverse_frequencies", torch.float64).cpu()
        else:
            pairs = torch.arange(spec.head_size // 2, dtype=torch.float64)
            frequencies = window.rope_theta ** (-2 * pairs / spec.head_size)
        angles = torch.outer(torch.arange(spec.max_length, dtype=torch.float64), frequencies)
        tables[window.rope_theta] = RotaryTable(
            cosines=angles.cos().float().to(device), sines=angles.sin().float().to(device)
        )
    return tuple(tables[window.rope_theta] for window in spec.attention)


def _head(
    reader: WeightReader, spec: EncoderSpec, word_embeddings: Tensor, dtype: torch.dtype
) -> VocabularyHead | Linear:
    if spec.is_student:
        return reader.linear(["student"], torch.float32)
    norm = reader.norm("head_norm")
    assert norm is not None
    is_tied = reader.is_one_tensor("decoder_weight", "word_embeddings")
    return VocabularyHead(
        dense=reader.linear(["head_dense"], torch.float32),
        norm=norm,
        decoder_weight=word_embeddings.to(dtype) if is_tied else reader.tensor("decoder_weight", dtype),
        decoder_bias=reader.tensor("decoder_bias", torch.float32) if reader.has("decoder_bias") else None,
    )
