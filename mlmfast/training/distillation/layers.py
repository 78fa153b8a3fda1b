"""A teacher's encoder with some of its layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import transformers
from torch import Tensor, nn

from mlmfast.engines.base import ModelFiles
from mlmfast.engines.torch_load import load_model, quiet_transformers
from mlmfast.errors import SettingsError, UnsupportedModelError
from mlmfast.models import head_layout
from mlmfast.training.distillation.settings import StudentSettings
from mlmfast.training.model import encoder_layers
from mlmfast.types import JsonRecord

NUM_LAYERS = ("num_hidden_layers", "n_layers")
"""How configurations call the number of layers."""
NOT_IN_A_STUDENT = ("pooler.", "contact_head.")


@dataclass(frozen=True)
class TruncatedEncoder:
    """encoder: a model of transformers; prefix: before its tensors' names in a published checkpoint; config:
    the content of the teacher's config.json made to fit."""

    encoder: Any
    prefix: str
    config: JsonRecord


def truncated_encoder(files: ModelFiles, settings: StudentSettings) -> TruncatedEncoder:
    """The encoder of a masked model with the layers that the settings keep, and their weights.

    Raises SettingsError for layers that the teacher does not have, and what loading raises.
    """
    name = files.source.name
    if files.config.kind != "masked":
        raise SettingsError(f"{name} is a {files.config.kind} model; the teacher has to be a masked one")
    if head_layout(files.config) is None:
        raise UnsupportedModelError(
            f"{name}: model type {files.config.model_type!r} is not known here, so its student could not run"
        )
    model = load_model(files)
    encoder, prefix = model.base_model, model.base_model_prefix
    values = dict(files.config.values)
    num_layers = int(encoder.config.num_hidden_layers)
    is_shared = len(encoder_layers(encoder)) != num_layers
    kept = kept_layers(num_layers, settings)
    if is_shared and settings.kept_layers is not None:
        raise SettingsError(
            f"{name}: its layers share their weights; give --layers in place of --kept-layers"
        )
    if kept != tuple(range(num_layers)):
        encoder = _rebuilt(files, encoder, kept, is_shared)
        values |= {key: len(kept) for key in NUM_LAYERS if key in values}
        if getattr(encoder.config, "layer_types", None) is not None:
            values["layer_types"] = list(encoder.config.layer_types)
    return TruncatedEncoder(encoder.requires_grad_(True), prefix, values)


def kept_layers(num_layers: int, settings: StudentSettings) -> tuple[int, ...]:
    """The layers kept of `num_layers`, counted from 0, ascending.

    Evenly spread from the first to the last, i * (num_layers - 1) / (layers - 1) rounded half to even; the
    first alone for one. Raises SettingsError for layers that are not there.
    """
    if settings.kept_layers is not None:
        given = settings.kept_layers
        if not given or list(given) != sorted(set(given)) or not 0 <= given[0] <= given[-1] < num_layers:
            raise SettingsError(
                f"kept_layers is {given}; expected ascending numbers from 0 to {num_layers - 1}, the "
                "teacher's last layer"
            )
        return given
    count = num_layers if settings.layers is None else settings.layers
    if count > num_layers:
        raise SettingsError(f"layers is {count}, but the teacher has {num_layers}")
    return tuple(round(i * (num_layers - 1) / max(count - 1, 1)) for i in range(count))


def _rebuilt(files: ModelFiles, encoder: Any, kept: Sequence[int], is_shared: bool) -> Any:
    """An encoder of its own configuration, so that what depends on a layer's place is as it will be read."""
    with quiet_transformers():
        config = transformers.AutoConfig.from_pretrained(str(files.source.folder), local_files_only=True)
    config.num_hidden_layers = len(kept)
    if getattr(config, "layer_types", None) is not None:
        config.layer_types = [config.layer_types[index] for index in kept]
    smaller = type(encoder)(config)
    if hasattr(smaller, "pooler"):
        smaller.pooler = None
    weights = student_parameters(encoder)
    if not is_shared:
        weights = _renumbered(weights, encoder, kept)
    missing, unexpected = smaller.load_state_dict(weights, strict=False)
    needed = set(student_parameters(smaller))
    wrong = sorted(needed.intersection(missing)) + sorted(unexpected)
    if wrong:
        raise UnsupportedModelError(
            f"{files.source.name}: its layers {', '.join(map(str, kept))} do not make an encoder of "
            f"their own: {', '.join(wrong[:4])} do not fit"
        )
    return smaller.eval()


def student_parameters(encoder: nn.Module) -> dict[str, Tensor]:
    """What a student keeps of an encoder, by name: what its hidden states depend on."""
    return {
        name: parameter.detach()
        for name, parameter in encoder.named_parameters()
        if not name.startswith(NOT_IN_A_STUDENT)
    }


def _renumbered(weights: dict[str, Tensor], encoder: nn.Module, kept: Sequence[int]) -> dict[str, Tensor]:
    stack = encoder_layers(encoder)
    prefix = next(name for name, module in encoder.named_modules() if module is stack) + "."
    renumbered = {}
    for name, values in weights.items():
        if name.startswith(prefix):
            number, _, rest = name[len(prefix) :].partition(".")
            if int(number) in kept:
                renumbered[f"{prefix}{kept.index(int(number))}.{rest}"] = values
        else:
            renumbered[name] = values
    return renumbered
