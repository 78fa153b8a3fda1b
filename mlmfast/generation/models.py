"""Which models texts are generated with."""

from __future__ import annotations

from mlmfast.engines.base import ModelFiles
from mlmfast.errors import SettingsError


def require_logits_of_masks(files: ModelFiles) -> None:
    """Raises SettingsError for a model that gives no logits at masked positions."""
    name, kind = files.source.name, files.config.kind
    if kind != "masked":
        raise SettingsError(f"{name} is a {kind} model; generation needs a masked one")
    if files.graph is not None:
        raise SettingsError(
            f"{name} is an ONNX export, which gives log-probabilities alone; generation needs the logits of "
            "the model it was exported from"
        )
