"""AdamW over the weights that are tuned (Loshchilov & Hutter 2019)."""

from __future__ import annotations

import torch
from torch import nn

from mlmfast.errors import SettingsError


def adamw(model: nn.Module, weight_decay: float) -> torch.optim.AdamW:
    """Biases and the weights of norms, which are vectors, do not decay.

    Raises SettingsError if everything is frozen.
    """
    tuned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not tuned:
        raise SettingsError("all weights of the model are frozen; freeze fewer layers")
    groups = [
        {"params": [p for p in tuned if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in tuned if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], fused=True)


def set_learning_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate
