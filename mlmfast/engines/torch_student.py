"""Students for the torch engine: an encoder filled from the checkpoint, a dot product for a head."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open

from mlmfast.engines.base import ModelFiles, Outputs
from mlmfast.engines.torch_load import BUFFERS, UNUSED, quiet_transformers, some_of
from mlmfast.errors import ModelError
from mlmfast.models.heads import BIAS, FLOATS, WEIGHT, modern_name
from mlmfast.types import Int32Array, Int64Array, TargetOutputs

NOT_READ = (*UNUSED, *BUFFERS, "contact_head.")


class StudentHead:
    """See engines.torch_heads.TargetHead. A target's value stands where its log-probability would."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        """weight [1, hidden_size]; bias [1]."""
        self.weight = weight
        self.bias = bias

    def __call__(
        self, hidden: torch.Tensor, target_ids: Int32Array, offsets: Int64Array, outputs: Outputs
    ) -> TargetOutputs:
        """Raises SettingsError for outputs that only a distribution over the vocabulary has."""
        outputs.require_values_alone()
        values = torch.nn.functional.linear(hidden.float(), self.weight, self.bias)[:, 0]  # [u]
        counts = torch.from_numpy(offsets).diff().to(values.device)
        return TargetOutputs(log_prob=values.repeat_interleave(counts).cpu().numpy())


def load_student(files: ModelFiles, device: torch.device) -> tuple[Any, StudentHead]:
    """The encoder, float32, in evaluation mode, and the head. Raises ModelError."""
    tensors = dict(_tensors(files))
    head = StudentHead(tensors.pop(WEIGHT).to(device), tensors.pop(BIAS).to(device))
    return _encoder(files, tensors).to(device), head


def _encoder(files: ModelFiles, tensors: dict[str, torch.Tensor]) -> Any:
    folder = files.source.folder
    auto: Any = transformers.AutoModel
    try:
        with quiet_transformers():
            settings = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True)
            encoder = auto.from_config(settings, trust_remote_code=False, dtype=torch.float32)
    except Exception as error:  # transformers raises OSError, ValueError, RuntimeError and others
        raise ModelError(
            f"{folder}: no encoder of model type {files.config.model_type!r} can be made "
            f"({type(error).__name__}: {str(error).strip().splitlines()[0]})"
        ) from error
    prefix = f"{encoder.base_model_prefix}."
    state = _named_as_loaded(folder, tensors, prefix)
    wanted = {
        name: parameter
        for name, parameter in encoder.state_dict().items()
        if not any(part in name for part in NOT_READ)
    }
    missing = sorted(wanted.keys() - state.keys())
    ignored = encoder._keys_to_ignore_on_load_unexpected or ()  # such as ESM's unused position table
    surplus = sorted(
        name for name in state.keys() - wanted.keys() if not any(re.search(i, name) for i in ignored)
    )
    mismatched = sorted(n for n in wanted.keys() & state.keys() if wanted[n].shape != state[n].shape)
    if missing or surplus or mismatched:
        raise ModelError(
            f"{folder}: the checkpoint does not fit {type(encoder).__name__} as configured: missing "
            f"{some_of(missing)}, surplus {some_of(surplus)}, of another shape {some_of(mismatched)}"
        )
    encoder.load_state_dict(state, strict=False)
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None
    return encoder.eval().requires_grad_(False)


def _named_as_loaded(folder: Path, tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """Without prefix and with the norms' names of today. Raises ModelError for two tensors of one name that
    differ."""
    state: dict[str, torch.Tensor] = {}
    stored_as: dict[str, str] = {}
    for stored, tensor in tensors.items():
        name = modern_name(stored).removeprefix(prefix)
        if name in state and not torch.equal(state[name], tensor):
            raise ModelError(
                f"{folder}: the checkpoint stores one tensor twice, as {stored_as[name]} and {stored}, and "
                "the two differ; which one its scores need cannot be known"
            )
        state[name], stored_as[name] = tensor, stored
    return state


def _tensors(files: ModelFiles) -> Iterator[tuple[str, torch.Tensor]]:
    """The checkpoint's tensors that are read, float32. Raises ModelError for other types."""
    entries = {
        name: entry
        for name, entry in files.checkpoint.tensors.items()
        if not any(part in name for part in NOT_READ)
    }
    for file in files.checkpoint.files:
        with safe_open(file, framework="pt") as stream:
            for name, entry in entries.items():
                if entry.file != file:
                    continue
                if entry.dtype not in FLOATS:
                    raise ModelError(f"{file}: tensor {name} is {entry.dtype}; expected {', '.join(FLOATS)}")
                yield name, stream.get_tensor(name).float()
