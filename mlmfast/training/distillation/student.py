"""A student under training: an encoder run without masks, and a dot product with its final states."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlmfast.engines.base import ModelFiles
from mlmfast.engines.torch_device import choose_device
from mlmfast.scheduling import pack
from mlmfast.scheduling.batches import pad
from mlmfast.scheduling.csr import select
from mlmfast.training.distillation.corpus import Corpus
from mlmfast.training.distillation.layers import student_parameters, truncated_encoder
from mlmfast.training.distillation.loss import Scale, text_loss, token_loss
from mlmfast.training.distillation.settings import LossSettings, StudentSettings
from mlmfast.training.model import embeddings_of
from mlmfast.types import Float32Array, Int64Array, JsonRecord

Float64Array = NDArray[np.float64]


class Student(nn.Module):
    """encoder: of transformers, always in evaluation mode: a student is trained without dropout; its head's
    weight [1, hidden_size] and bias [1] give standardised values, see `loss`, and begin at 0. precision: of
    matrix products, `float32` or by autocast `bfloat16`."""

    def __init__(
        self, files: ModelFiles, settings: StudentSettings, *, precision: str, device: str | None = None
    ) -> None:
        """Raises ModelError, UnsupportedModelError, SettingsError."""
        super().__init__()
        self.settings = settings
        self.device = choose_device(device)
        made = truncated_encoder(files, settings)
        self.prefix, self.config = made.prefix, made.config
        self.encoder = made.encoder.to(self.device)
        if self.device.type == "cpu" and self.encoder.config._attn_implementation == "sdpa":
            # The backward pass of the fused attention takes longer than all else there, on short texts.
            self.encoder.set_attn_implementation("eager")
        for name, parameter in self.encoder.named_parameters():
            parameter.requires_grad_(name in student_parameters(self.encoder))
        if settings.freeze_embeddings:
            for parameter in embeddings_of(self.encoder).values():
                parameter.requires_grad_(False)
        hidden_size = int(self.encoder.config.hidden_size)
        self.weight = nn.Parameter(torch.zeros(1, hidden_size, device=self.device))
        self.bias = nn.Parameter(torch.zeros(1, device=self.device))
        self.scale = Scale(0.0, 1.0)
        self.precision = precision
        self._pad_id = files.tokenizer.special.pad_id or 0

    def forward(self, corpus: Corpus, texts: Int64Array) -> Tensor:
        """Standardised values of some texts: [b, L] for head `token`, padding's too, [b] for `cls`."""
        tokens, offsets = select(corpus.offsets, texts)
        lengths = np.diff(offsets)
        longest = int(lengths.max())
        ids = pad(corpus.input_ids[tokens], offsets.astype(np.int32), longest, self._pad_id)
        inputs: dict[str, Any] = {}
        if lengths.min() < longest:
            inputs["attention_mask"] = self.tensor(np.arange(longest) < lengths[:, None]).long()
        with self._autocast():
            states = self.encoder(input_ids=self.tensor(ids), **inputs)[0]  # [b, L, hidden_size]
        if self.settings.head == "cls":
            states = states[:, 0]
        values: Tensor = nn.functional.linear(states.float(), self.weight, self.bias)[..., 0]
        return values

    def loss(
        self, corpus: Corpus, targets: Float32Array, texts: Int64Array, settings: LossSettings
    ) -> Tensor:
        """Of some texts; targets: standardised, float32[N] for head `token`, NaN at special tokens, or
        float32[S] for `cls`."""
        values = self(corpus, texts)
        if self.settings.head == "cls":
            return text_loss(values, self.tensor(targets[texts]))
        tokens, offsets = select(corpus.offsets, texts)
        padded = np.full(values.shape, np.nan, dtype=np.float32)
        padded[np.arange(values.shape[1]) < np.diff(offsets)[:, None]] = targets[tokens]
        return token_loss(values, self.tensor(padded), settings)

    def scores(self, corpus: Corpus, batch_tokens: int) -> Float64Array:
        """float64[S], the score of every text in nats."""
        found = np.empty(corpus.num_texts)
        with torch.no_grad():
            for texts in pack(corpus.lengths, batch_tokens):
                values = self(corpus, texts).double().cpu().numpy() * self.scale.deviation + self.scale.mean
                if self.settings.head == "token":
                    tokens, offsets = select(corpus.offsets, texts)
                    scored = np.zeros(values.shape, dtype=np.bool_)
                    scored[np.arange(values.shape[1]) < np.diff(offsets)[:, None]] = corpus.scored[tokens]
                    values = np.where(scored, values, 0.0).sum(axis=1)
                found[texts] = values
        return found

    def trained_state(self) -> dict[str, Tensor]:
        """Copies of the parameters that are trained, by name."""
        return {name: p.detach().clone() for name, p in self.named_parameters() if p.requires_grad}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Takes back what `trained_state` gave."""
        parameters = dict(self.named_parameters())
        with torch.no_grad():
            for name, values in state.items():
                parameters[name].copy_(values)

    def tensors(self) -> dict[str, Tensor]:
        """What is written, by published names: the encoder, and the head with the scale folded in."""
        deviation, mean = self.scale.deviation, self.scale.mean
        head = {
            "student.weight": (self.weight.detach().double() * deviation).float(),
            "student.bias": (self.bias.detach().double() * deviation + mean).float(),
        }
        encoder = {f"{self.prefix}.{name}": p for name, p in student_parameters(self.encoder).items()}
        return encoder | head

    def description(self, teacher: JsonRecord) -> JsonRecord:
        """The content of config.json; teacher: what it says of where the student comes from."""
        return {
            **self.config,
            "architectures": ["MlmfastStudent"],
            "mlmfast_student": {"head": self.settings.head, "teacher": teacher},
        }

    def tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16")
