"""Any Hugging Face masked or causal language model, or a student of one, on a CPU or a GPU.

Rows are padded to the longest of their batch for the encoder; its states are gathered at the targets
before the head, so logits of all positions never exist.
"""

from __future__ import annotations

import ctypes
import inspect
import sys
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from transformers.modeling_outputs import BaseModelOutput

from mlmfast.engines.base import ModelFiles, Outputs
from mlmfast.engines.torch_device import choose_device, describe_device, use_one_thread
from mlmfast.engines.torch_heads import KernelHead, LinearScoreHead, LogitsHead, TargetHead, head_parts
from mlmfast.engines.torch_load import load_model
from mlmfast.engines.torch_precision import use_bfloat16_products
from mlmfast.engines.torch_student import load_student
from mlmfast.errors import ModelError
from mlmfast.models import head_layout
from mlmfast.scheduling.batches import distinct_targets, expand, in_batch_order, pad
from mlmfast.types import JsonRecord, RowBatch, TargetOutputs

PROBE_TOLERANCE = 1e-3
"""How far gathered log-probabilities may be from the model's own at load; a wrong head is far off."""


class TorchEngine:
    """See engines.base.Engine."""

    def __init__(self, files: ModelFiles, *, precision: str = "float32", device: str | None = None) -> None:
        """Raises ModelError, SettingsError, MissingExtraError."""
        self._device = choose_device(device)
        self._causal = files.config.kind == "causal"
        self._precision = precision
        self._pad_id = files.tokenizer.special.pad_id or 0
        self.max_length = files.config.max_length
        self.max_batch_tokens = 2048 if self._device.type == "cpu" else 65536
        self.max_workers = None if self._device.type == "cpu" else 1

        # glibc's own; other C libraries have none.
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None

        self._encoder: Any
        self._head: TargetHead
        if files.config.kind == "student":
            self._encoder, self._head = load_student(files, self._device)
        else:
            self._load_with_head(files)
        self._takes_types = "token_type_ids" in inspect.signature(self._encoder.forward).parameters
        if precision == "bfloat16":
            use_bfloat16_products(self._encoder)

    def _load_with_head(self, files: ModelFiles) -> None:
        """The encoder and the vocabulary head, checked together against the model's own output."""
        model = load_model(files)
        self._encoder = model.base_model
        if self._encoder is model:
            raise ModelError(f"{type(model).__name__} has no encoder apart from its head")
        word_start = files.tokenizer.word_starts if self._causal else None
        probe = _probe_ids(files)
        expected = _own_log_probs(model, probe)
        self._head = self._split_head(model, files, word_start)
        self._check_head(type(model).__name__, probe, expected)
        self._encoder.to(self._device)
        model.to(self._device)

    def prepare_thread(self) -> None:
        """See engines.base.Engine."""
        use_one_thread(self._device)

    def score(self, batch: RowBatch, outputs: Outputs) -> TargetOutputs:
        """See engines.base.Engine."""
        expanded = expand(batch)
        places, offsets, order = distinct_targets(expanded.target_indices)
        rows = np.searchsorted(expanded.cu_seqlens, places, side="right") - 1
        positions = places - expanded.cu_seqlens[rows]
        lengths = np.diff(expanded.cu_seqlens)
        input_ids = pad(expanded.input_ids, expanded.cu_seqlens, expanded.max_seqlen, self._pad_id)
        inputs: dict[str, Any] = {}
        if self._causal:
            # A token is predicted from the state before it; the last one is never read.
            positions -= 1
            input_ids = input_ids[:, : max(expanded.max_seqlen - 1, 1)]
            inputs["use_cache"] = False
        elif lengths.min(initial=expanded.max_seqlen) < expanded.max_seqlen:
            inputs["attention_mask"] = self._tensor(np.arange(expanded.max_seqlen) < lengths[:, None]).long()
        if self._takes_types and expanded.token_type_ids is not None:
            inputs["token_type_ids"] = self._tensor(
                pad(expanded.token_type_ids, expanded.cu_seqlens, expanded.max_seqlen, 0)
            )
        with torch.inference_mode():
            states = self._encoder(input_ids=self._tensor(input_ids), **inputs)[0]  # [b, L, hidden_size]
            hidden = states[self._tensor(rows), self._tensor(positions)]
            found = self._head(hidden, batch.target_ids[order], offsets, outputs)
        if self._trim is not None:
            # Tensors of ever new sizes would fragment the heap: freed memory goes back after each batch, so
            # that the peak is that of one batch however many there are.
            del states, hidden
            self._trim(0)
        return in_batch_order(found, order)

    def describe(self) -> JsonRecord:
        """See engines.base.Engine."""
        return {
            "engine": "torch",
            "precision": self._precision,
            **describe_device(self._device),
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        }

    def _tensor(self, array: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)

    def _split_head(self, model: Any, files: ModelFiles, word_start: NDArray[np.uint8] | None) -> TargetHead:
        layout = head_layout(files.config)
        vocab_size = files.config.vocab_size
        if word_start is not None:
            word_start = np.pad(word_start, (0, max(0, vocab_size - len(word_start))))[:vocab_size]
        if layout is None:
            return LogitsHead(_own_head(model), vocab_size, word_start)
        head = KernelHead if self._device.type == "cpu" else LinearScoreHead
        return head(*head_parts(model, layout), word_start)

    def _check_head(self, name: str, probe: torch.Tensor, expected: torch.Tensor) -> None:
        """The head, taken apart, must say what the whole model says. expected [n, V] log-probabilities."""
        num_places = probe.shape[1]
        ids = torch.stack([expected.argmax(-1), expected.argmin(-1)], dim=1)  # [n, 2]
        with torch.inference_mode():
            hidden = self._encoder(input_ids=probe)[0][0]
            found = self._head(
                hidden, ids.int().flatten().numpy(), np.arange(0, 2 * num_places + 1, 2), Outputs()
            )
        error = np.abs(found.log_prob - expected.gather(1, ids).flatten().numpy()).max()
        if not error <= PROBE_TOLERANCE * max(1.0, float(expected.abs().max())):
            raise ModelError(
                f"the head of {name}, applied to single positions, differs from the model's own output by "
                f"{error:.3g}: this model computes something this engine does not carry out"
            )


def _probe_ids(files: ModelFiles) -> torch.Tensor:
    """A short row, int64[1, n]."""
    ids = files.tokenizer.encode(["A small probe."], causal=files.config.kind == "causal").input_ids
    return torch.from_numpy(ids[: min(files.config.max_length, 8)].astype(np.int64))[None]


def _own_log_probs(model: Any, probe: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return torch.log_softmax(model(input_ids=probe).logits[0].double(), dim=-1)


class _Passed(torch.nn.Module):
    """Stands in for an encoder: hands on the hidden states it is given."""

    def forward(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=inputs_embeds)


def _own_head(model: Any) -> Any:
    """The model's own code after its encoder: hidden [u, hidden_size] to logits [u, V]."""
    setattr(model, model.base_model_prefix, _Passed())
    return lambda hidden: model(inputs_embeds=hidden[None]).logits[0]
