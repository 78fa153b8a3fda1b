"""impl "cuda": linear + scoring rule by the CUDA C++ kernels, log, and power and pseudospherical at alpha 2.

float32 is multiplied and summed in float32, bfloat16 multiplied on the matrix units and summed in float32.
Forward keeps logits in tiles on the chip; backward holds gradients of logits for GRADIENT_BYTES worth of
classes at a time. No atomics: a repeated call gives the same bits.
"""

from __future__ import annotations

import ctypes
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mlmfast.errors import MlmfastError
from mlmfast.kernels.cuda_library import RuleProblem, call, count_bytes, load_library

if TYPE_CHECKING:
    from mlmfast.kernels.rules import ScoringRule

GRADIENT_BYTES = 1 << 26
"""Scratch memory of the backward pass; more only where 128 classes need more."""
TYPES = {torch.float32: 0, torch.bfloat16: 1}
"""MLMFAST_CUDA_FLOAT32, MLMFAST_CUDA_BFLOAT16."""
RULES = {"log": 0, "power": 1, "pseudospherical": 2}
"""MLMFAST_CUDA_RULE_LOG, _BRIER, _SPHERICAL: the members of the families with alpha 2."""
MAX_FEATURES = (1 << 23) - 1
MAX_CLASSES = (1 << 31) - 1


def can_run(input: Tensor, weight: Tensor, rule: ScoringRule) -> str | None:
    """None if it can, else why not, in one clause."""
    if rule.alpha != 2:
        return f"it computes alpha 2, not {rule.alpha}"
    if input.dtype not in TYPES or weight.dtype != input.dtype:
        return f"it computes in float32 or bfloat16, not {input.dtype} with {weight.dtype}"
    if weight.shape[0] > MAX_CLASSES or weight.shape[1] > MAX_FEATURES:
        return f"it takes up to {MAX_CLASSES} classes and {MAX_FEATURES} features, not {list(weight.shape)}"
    if not input.is_cuda:
        return f"it needs a CUDA device, not {input.device}"
    if torch.cuda.get_device_capability(input.device) < (8, 0):
        return "it needs a GPU of compute capability 8.0 or later"
    try:
        load_library()
    except MlmfastError as error:
        return str(error)
    return None


def forward(
    input: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, rule: ScoringRule, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """The loss of every row and the coefficients of its gradient.

    input [N, D], weight [V, D] of its dtype, bias [V] or None, target int64[N], all contiguous and on one
    device. Returns float32[N], 0 where target is ignore_index, and float32[N, 7]: lse, A, B, C, U, D,
    target gradient. Raises MissingExtraError without the library, RuntimeError if the device fails.
    """
    problem = rule_problem(input, weight, bias, target, rule, ignore_index)
    loss = input.new_empty(len(input), dtype=torch.float32)
    coefficients = input.new_empty((len(input), 7), dtype=torch.float32)
    with on_device_of(input):
        scratch = new_scratch(input, count_bytes("mlmfast_cuda_rule_forward_scratch", problem))
        call(
            "mlmfast_cuda_rule_forward",
            *(problem, address(loss), address(coefficients)),
            *(address(scratch), scratch.numel(), stream_of(input)),
        )
    return loss, coefficients


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
    """The gradients of input, weight and bias, where needed, in their dtypes, summed in float32.

    grad_loss float32[N]: the gradient of every row's loss. The rest as it went into `forward` and came out.
    Raises what `forward` raises.
    """
    # What is ignored has coefficients that say so; only the targets that are classes are looked for.
    problem = rule_problem(input, weight, bias, target, rule, ignore_index=-1)
    grad_loss = grad_loss.contiguous()
    grad_input = torch.empty_like(input) if needs[0] else None
    grad_weight = torch.empty_like(weight) if needs[1] else None
    grad_bias = torch.empty_like(bias) if needs[2] and bias is not None else None
    with on_device_of(input):
        scratch = new_scratch(
            input, count_bytes("mlmfast_cuda_rule_backward_scratch", problem, GRADIENT_BYTES)
        )
        call(
            "mlmfast_cuda_rule_backward",
            *(problem, address(grad_loss), address(coefficients)),
            *(address(grad_input), address(grad_weight), address(grad_bias)),
            *(address(scratch), scratch.numel(), stream_of(input)),
        )
    return grad_input, grad_weight, grad_bias


def rule_problem(
    input: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, rule: ScoringRule, ignore_index: int
) -> RuleProblem:
    return RuleProblem(
        num_rows=len(input),
        num_classes=weight.shape[0],
        hidden_size=weight.shape[1],
        input=address(input),
        weight=address(weight),
        bias=address(bias),
        target=address(target),
        ignore_index=ignore_index,
        type=TYPES[input.dtype],
        bias_type=TYPES[input.dtype if bias is None else bias.dtype],
        rule=RULES[rule.family],
        masked_log=rule.has_masked_log,
        smoothing=rule.smoothing,
    )


def address(tensor: Tensor | None) -> ctypes.c_void_p:
    """Of its data; NULL for None."""
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def new_scratch(like: Tensor, num_bytes: int) -> Tensor:
    return like.new_empty(num_bytes, dtype=torch.uint8)


def on_device_of(tensor: Tensor) -> AbstractContextManager[None]:
    """Makes the tensor's device the current one, whose streams and properties the library uses."""
    return torch.cuda.device(tensor.device)


def stream_of(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(torch.cuda.current_stream(tensor.device).cuda_stream)
