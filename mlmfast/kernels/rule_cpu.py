"""impl "cpu": linear + scoring rule in the compiled core, log, brier and spherical.

A float32 product is three of bfloat16 where the CPU has matrix units for those (bf16x3: within 1e-4 per
log-probability for logits up to 30), else a plain one. bfloat16 inputs are multiplied as they are and summed
in float32. The core uses as many threads as torch does, with which the last bits of its sums vary; each takes
about 16 MB of scratch and a float32 copy of the gradient by the input.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mlmfast.errors import MissingExtraError
from mlmfast.kernels.head import has_matrix_units, load_core
from mlmfast.kernels.rules import ScoringRule

CORE_RULES = {"log": "log", "power": "brier", "pseudospherical": "spherical"}
"""The core's name of a family's member with alpha 2."""


def can_run(input: Tensor, weight: Tensor, rule: ScoringRule) -> str | None:
    """None if it can, else why not."""
    if rule.alpha != 2:
        return f"the core computes alpha 2 only, not {rule.alpha}"
    return core_lacks(input)


def core_lacks(input: Tensor) -> str | None:
    if input.device.type != "cpu":
        return f"the tensors are on {input.device}"
    if input.dtype not in (torch.float32, torch.bfloat16):
        return f"the core takes torch.float32 or torch.bfloat16, not {input.dtype}"
    try:
        load_core()
    except MissingExtraError as error:
        return str(error)
    return None


def forward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    rule: ScoringRule,
    ignore_index: int,
) -> tuple[Tensor, Tensor]:
    """input [N, D], weight [V, D], bias [V], target int64[N] to losses [N] and coefficients [N, 7]."""
    losses = torch.empty(len(input))
    coefficients = torch.empty(len(input), 7)
    targets = target.masked_fill(target == ignore_index, -1)
    load_core().linear_scoring_rule_forward(
        *core_call(input, weight, bias, targets, rule), losses.numpy(), coefficients.numpy()
    )
    return losses, coefficients


def backward(
    grad_loss: Tensor,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    coefficients: Tensor,
    rule: ScoringRule,
    needs: tuple[bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """grad_loss [N] to the gradients of input, weight and bias, None where not needed; sums in float32."""
    grad_input = torch.empty_like(input) if needs[0] else None
    grad_weight = torch.empty_like(weight) if needs[1] else None
    grad_bias = torch.empty(len(weight)) if needs[2] and bias is not None else None
    is_ignored = coefficients[:, 0] == torch.inf
    load_core().linear_scoring_rule_backward(
        *core_call(input, weight, bias, target.masked_fill(is_ignored, -1), rule),
        coefficients.numpy(),
        grad_loss.numpy(),
        *(
            None if gradient is None else numpy_of(gradient)
            for gradient in (grad_input, grad_weight, grad_bias)
        ),
    )
    if grad_bias is not None and bias is not None:
        grad_bias = grad_bias.to(bias.dtype)
    return grad_input, grad_weight, grad_bias


def core_call(
    input: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, rule: ScoringRule
) -> tuple[Any, ...]:
    return (
        numpy_of(input),
        numpy_of(weight),
        None if bias is None else numpy_of(bias.float()),
        targets.numpy(),
        load_core().ScoringRule(CORE_RULES[rule.family], rule.smoothing, rule.masked_log),
        precision_of(input),
        "",
        torch.get_num_threads(),
    )


def numpy_of(tensor: Tensor) -> Any:
    """The same memory as an array, bfloat16 as uint16."""
    tensor = tensor.detach()
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def precision_of(input: Tensor) -> str:
    """The core's precision of products of such inputs."""
    if input.dtype == torch.bfloat16:
        return "bfloat16"
    return "bf16x3" if has_matrix_units() else "float32"
