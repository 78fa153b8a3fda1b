"""The linear scoring-rule loss as torch operators (`torch.ops.mlmfast`).

Each impl is a module with can_run, forward and backward (see rule_chunked for their shapes). The
operators hand it contiguous tensors and switch autocast off, which would round what it computes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mlmfast.errors import SettingsError
from mlmfast.kernels.impl_choice import choose_impl
from mlmfast.kernels.logit_tiles import compute_dtype
from mlmfast.kernels.rule_closed_form import Coefficients
from mlmfast.kernels.rules import ScoringRule

FUNCTION = "linear_scoring_rule_loss"


@torch.library.custom_op(
    "mlmfast::checked_ids",
    mutates_args=(),
    schema="(Tensor ids, str name, int size, int? ignore_index) -> Tensor",
)
def checked_ids(ids: Tensor, name: str, size: int, ignore_index: int | None) -> Tensor:
    """A contiguous int64 copy of ids, all in [0, size) or ignore_index.

    On a CPU it raises SettingsError otherwise; elsewhere the device stops with an assertion, as it does
    in torch's own losses, so that nothing waits for the device.
    """
    checked = ids.to(torch.int64, copy=True, memory_format=torch.contiguous_format)
    fits = (checked >= 0) & (checked < size)
    if ignore_index is not None:
        fits |= checked == ignore_index
    if ids.device.type != "cpu":
        torch._assert_async(fits.all(), f"{name}: expected ids from 0 to {size - 1}")
    elif not fits.all():
        place = int(torch.nonzero(~fits.flatten())[0])
        allowed = "" if ignore_index is None else f" or ignore_index {ignore_index}"
        raise SettingsError(
            f"{name}: expected ids from 0 to {size - 1}{allowed}, "
            f"got {int(checked.flatten()[place])} at place {place}"
        )
    return checked


@checked_ids.register_fake
def _(ids: Tensor, name: str, size: int, ignore_index: int | None) -> Tensor:
    return ids.new_empty(ids.shape, dtype=torch.int64)


RULE_SCHEMA = "str rule, float alpha, float smoothing, bool masked_log, str impl"


@torch.library.custom_op(
    "mlmfast::linear_scoring_rule",
    mutates_args=(),
    schema=f"(Tensor input, Tensor weight, Tensor? bias, Tensor target, int ignore_index, {RULE_SCHEMA})"
    " -> (Tensor, Tensor)",
)
def linear_scoring_rule(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    ignore_index: int,
    rule: str,
    alpha: float,
    smoothing: float,
    masked_log: bool,
    impl: str,
) -> tuple[Tensor, Tensor]:
    """input [N, D], weight [V, D], bias [V], target int64[N] to losses [N] and coefficients [N, 7].

    Differentiable through the losses once; the coefficients are what the backward needs of the forward.
    """
    settings = ScoringRule(rule, alpha, smoothing, masked_log)
    module = choose_impl(FUNCTION, impl, input, weight, settings)
    with torch.autocast(input.device.type, enabled=False):
        losses, coefficients = module.forward(
            input.contiguous(),
            weight.contiguous(),
            None if bias is None else bias.contiguous(),
            target.contiguous(),
            settings,
            ignore_index,
        )
    return losses, coefficients


@linear_scoring_rule.register_fake
def _(input: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    dtype = compute_dtype(input.dtype)
    num_rows = input.shape[0]
    return (
        input.new_empty(num_rows, dtype=dtype),
        input.new_empty(num_rows, len(Coefficients._fields), dtype=dtype),
    )


@torch.library.custom_op(
    "mlmfast::linear_scoring_rule_backward",
    mutates_args=(),
    schema="(Tensor grad_loss, Tensor input, Tensor weight, Tensor? bias, Tensor target, "
    f"Tensor coefficients, bool[] needs, {RULE_SCHEMA}) -> (Tensor, Tensor, Tensor)",
)
def linear_scoring_rule_backward(
    grad_loss: Tensor,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    coefficients: Tensor,
    needs: list[bool],
    rule: str,
    alpha: float,
    smoothing: float,
    masked_log: bool,
    impl: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of input, weight and bias; an empty tensor for one not in needs."""
    settings = ScoringRule(rule, alpha, smoothing, masked_log)
    module = choose_impl(FUNCTION, impl, input, weight, settings)
    with torch.autocast(input.device.type, enabled=False):
        gradients = module.backward(
            grad_loss.contiguous(),
            input.contiguous(),
            weight.contiguous(),
            None if bias is None else bias.contiguous(),
            target.contiguous(),
            coefficients.contiguous(),
            settings,
            (needs[0], needs[1], needs[2]),
        )
    grad_input, grad_weight, grad_bias = (
        input.new_empty(0) if gradient is None else gradient for gradient in gradients
    )
    return grad_input, grad_weight, grad_bias


@linear_scoring_rule_backward.register_fake
def _(
    grad_loss: Tensor,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    coefficients: Tensor,
    needs: list[bool],
    *_: object,
) -> tuple[Tensor, Tensor, Tensor]:
    sources = zip((input, weight, bias), needs, strict=True)
    grad_input, grad_weight, grad_bias = (
        input.new_empty(0) if source is None or not needed else source.new_empty(source.shape)
        for source, needed in sources
    )
    return grad_input, grad_weight, grad_bias


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    input, weight, bias, target, _, *settings = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(input, weight, bias, target, output[1])
    ctx.settings = settings


def _backward(ctx: Any, grad_losses: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    needs = list(ctx.needs_input_grad[:3])
    gradients = linear_scoring_rule_backward(grad_losses, *ctx.saved_tensors, needs, *ctx.settings)
    found = [gradient if needed else None for gradient, needed in zip(gradients, needs, strict=True)]
    return *found, *(None,) * (len(ctx.needs_input_grad) - len(needs))


linear_scoring_rule.register_autograd(_backward, setup_context=_save)
