"""A masked language model taken apart: final states at chosen places, and its head; frozen."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlmfast.engines.base import ModelFiles
from mlmfast.engines.torch_heads import head_parts
from mlmfast.engines.torch_load import load_model
from mlmfast.engines.torch_precision import use_bfloat16_products
from mlmfast.models import head_layout
from mlmfast.scheduling import pack
from mlmfast.scheduling.batches import pad
from mlmfast.types import Int64Array

MAX_BATCH_TOKENS = 4096


class FrozenTeacher:
    """weight [V, D], bias [V] or None: of the output layer. The encoder multiplies in bfloat16."""

    def __init__(self, files: ModelFiles) -> None:
        """Raises ModelError, SystemExit for a head that is not known."""
        layout = head_layout(files.config)
        if layout is None:
            raise SystemExit(
                f"{files.source.name}: the head of model type {files.config.model_type!r} is unknown"
            )
        model = load_model(files)
        self._encoder = model.base_model
        self._transform, self.weight, self.bias = head_parts(model, layout)
        use_bfloat16_products(self._encoder)
        self._fast_weight = self.weight.to(torch.bfloat16)
        self._pad_id = files.tokenizer.special.pad_id or 0

    @property
    def hidden_size(self) -> int:
        return self.weight.shape[1]

    @torch.inference_mode()
    def states(self, input_ids: NDArray[np.int32], offsets: Int64Array, places: Int64Array) -> Tensor:
        """float32 [k, D], the final states at places int64[k], in rising order, of the rows
        input_ids[offsets[i]:offsets[i+1]]."""
        found = np.empty((len(places), self.hidden_size), dtype=np.float32)
        lengths = np.diff(offsets)
        first = np.searchsorted(places, offsets)  # row i has the places first[i]:first[i+1]
        for rows in pack(lengths, MAX_BATCH_TOKENS):
            longest = int(lengths[rows].max())
            ids = np.concatenate([input_ids[offsets[row] : offsets[row + 1]] for row in rows])
            own = np.concatenate([[0], np.cumsum(lengths[rows])]).astype(np.int32)
            wanted = np.concatenate([np.arange(first[row], first[row + 1]) for row in rows])
            index = np.repeat(np.arange(len(rows)), np.diff(first)[rows])
            inputs: dict[str, Any] = {
                "input_ids": torch.from_numpy(pad(ids, own, longest, self._pad_id)),
                "attention_mask": torch.from_numpy(np.arange(longest) < lengths[rows][:, None]).long(),
            }
            states = self._encoder(**inputs)[0]
            found[wanted] = states[index, places[wanted] - offsets[rows][index]].float().numpy()
        return torch.from_numpy(found)

    def features(self, states: Tensor) -> Tensor:
        """[n, D], what the output layer reads."""
        return self._transform(states)

    def logits(self, states: Tensor, *, fast: bool = False) -> Tensor:
        """float32 [n, V]. fast: the product with the output weights in bfloat16."""
        features = self.features(states)
        if fast:
            return nn.functional.linear(features.to(torch.bfloat16), self._fast_weight).float() + (
                0.0 if self.bias is None else self.bias
            )
        return nn.functional.linear(features, self.weight, self.bias)
