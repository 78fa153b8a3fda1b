"""A masked language model whose weights are tuned: encoder, head at the targets, output weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlmfast.engines.base import ModelFiles
from mlmfast.engines.torch_device import choose_device
from mlmfast.engines.torch_heads import head_parts
from mlmfast.engines.torch_load import load_model
from mlmfast.errors import ModelError, SettingsError, UnsupportedModelError
from mlmfast.models import head_layout
from mlmfast.scheduling.batches import pad
from mlmfast.training.masking import MaskedBatch

PROBE_TOLERANCE = 1e-3
"""How far logits of gathered positions may be from the model's own at load; a wrong head is far off."""


class TrainedModel:
    """weight [V, D] and bias [V] or None: the output layer. The model itself is `huggingface`."""

    def __init__(self, files: ModelFiles, *, device: str | None = None) -> None:
        """Raises ModelError, UnsupportedModelError, SettingsError."""
        name = files.source.name
        if files.config.kind != "masked":
            raise SettingsError(
                f"{name} is a {files.config.kind} model; finetune adapts masked ones (for others see "
                "mlmfast.training.huggingface)"
            )
        layout = head_layout(files.config)
        if layout is None:
            raise UnsupportedModelError(
                f"{name}: the head of model type {files.config.model_type!r} is not known here; tune it with "
                "a Trainer of transformers and mlmfast.training.huggingface"
            )
        self.device = choose_device(device)
        self.huggingface = load_model(files).to(self.device).requires_grad_(True)
        self._encoder = self.huggingface.base_model
        self._transform, self.weight, self.bias = head_parts(self.huggingface, layout)
        self._pad_id = files.tokenizer.special.pad_id or 0
        self._check_head(name, files)

    def features(self, batch: MaskedBatch) -> tuple[Tensor, Tensor]:
        """What the output layer sees at the targets, [t, D], and their ids, int64[t]."""
        lengths = np.diff(batch.offsets)
        longest = int(lengths.max())
        ids = pad(batch.input_ids, batch.offsets.astype(np.int32), longest, self._pad_id)
        inputs: dict[str, Any] = {}
        if lengths.min() < longest:
            inputs["attention_mask"] = self._tensor(np.arange(longest) < lengths[:, None]).long()
        states = self._encoder(input_ids=self._tensor(ids), **inputs)[0]  # [b, longest, hidden_size]
        row = np.searchsorted(batch.offsets, batch.target_positions, side="right") - 1
        places = row * longest + batch.target_positions - batch.offsets[row]
        gathered = states.flatten(0, 1).index_select(0, self._tensor(places))
        return self._transform(gathered), self._tensor(batch.target_ids.astype(np.int64))

    def freeze(self, *, embeddings: bool, layers: int) -> None:
        """Takes the embeddings and the first layers out of training.

        Frozen embeddings freeze an output layer that is tied to them, but for its bias. Raises SettingsError
        for more layers than there are, or ones that share weights.
        """
        stack = encoder_layers(self._encoder)
        if layers > len(stack):
            raise SettingsError(
                f"freeze_layers is {layers}, but the model has {len(stack)} layers of their own weights"
            )
        for layer in list(stack)[:layers]:
            layer.requires_grad_(False)
        if embeddings:
            for parameter in embeddings_of(self._encoder).values():
                parameter.requires_grad_(False)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def _check_head(self, name: str, files: ModelFiles) -> None:
        """The head, taken apart, must say what the whole model says."""
        ids = files.tokenizer.encode(["A small probe."]).input_ids[: files.config.max_length]
        whole = MaskedBatch(ids, np.array([0, len(ids)]), np.arange(len(ids)), ids)
        with torch.inference_mode():
            features, _ = self.features(whole)
            found = nn.functional.linear(features, self.weight, self.bias)
            expected = self.huggingface(input_ids=self._tensor(ids.astype(np.int64))[None]).logits[0]
        error = float((found - expected).abs().max())
        if not error <= PROBE_TOLERANCE * max(1.0, float(expected.abs().max())):
            raise ModelError(
                f"{name}: its head, applied to single positions, differs from the model's own output by "
                f"{error:.3g}: this model computes something that is not carried out here"
            )


def encoder_layers(encoder: nn.Module) -> nn.ModuleList:
    """The encoder's layers, first to last: the longest list of modules in it."""
    lists = [module for module in encoder.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=len)


def embeddings_of(encoder: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters of what comes before the layers, by their names in the encoder."""
    in_layers = {id(parameter) for parameter in encoder_layers(encoder).parameters()}
    return {
        name: parameter
        for name, parameter in encoder.named_parameters()
        if "embed" in name and id(parameter) not in in_layers
    }
