"""bfloat16 for the torch engine: matrix products only; the rest, the head included, stays float32."""

from __future__ import annotations

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D


class BFloat16Linear(nn.Module):
    """x [*, in] float32 to [*, out] float32: a product of bfloat16 inputs, accumulated in float32."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        """weight [out, in]; bias [out] or None."""
        super().__init__()
        self.weight = nn.Parameter(weight.to(torch.bfloat16).contiguous(), requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias.to(torch.bfloat16), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x.to(torch.bfloat16), self.weight, self.bias).float()


def use_bfloat16_products(module: nn.Module) -> None:
    """Replace every linear layer below `module` by its bfloat16 twin."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, BFloat16Linear(child.weight, child.bias))
        elif isinstance(child, Conv1D):
            setattr(module, name, BFloat16Linear(child.weight.t(), child.bias))
        else:
            use_bfloat16_products(child)
