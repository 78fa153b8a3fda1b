"""What the linear operators take: checked, cast as autocast wants, flattened, rows gathered."""

from __future__ import annotations

import torch
from torch import Tensor

from mlmfast.errors import SettingsError
from mlmfast.kernels.logit_tiles import compute_dtype
from mlmfast.kernels.rule_operators import checked_ids

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def linear_inputs(
    input: Tensor, weight: Tensor, bias: Tensor | None, rows: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """input [..., D] to [N, D] (or [M, D], its rows int64[M]), weight [V, D], bias [V] or None.

    Under autocast, input and weight are cast to its precision. Raises SettingsError for what does not fit.
    """
    check_shapes(input, weight, bias)
    device = input.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        input, weight = (x if x.dtype == torch.float64 else x.to(dtype) for x in (input, weight))
    check_dtypes(input, weight, bias)
    hidden = input.flatten(0, -2)
    if rows is None:
        return hidden, weight, bias
    if rows.ndim != 1:
        raise SettingsError(f"rows: expected int64[M], got {described(rows)}")
    return hidden.index_select(0, checked_targets("rows", rows, len(hidden), None)), weight, bias


def reference_logits(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """All logits [N, V], in float32 or float64, differentiable."""
    dtype = compute_dtype(hidden.dtype)
    with torch.autocast(hidden.device.type, enabled=False):
        return torch.nn.functional.linear(
            hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
        )


def checked_targets(name: str, ids: Tensor, size: int, ignore_index: int | None) -> Tensor:
    """ids as int64, all in [0, size) or ignore_index. Raises SettingsError otherwise."""
    if ids.dtype not in (torch.int64, torch.int32):
        raise SettingsError(f"{name}: expected int64 ids, got {described(ids)}")
    checked: Tensor = checked_ids(ids, name, size, ignore_index)
    return checked


def check_shapes(input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    if weight.ndim != 2 or min(weight.shape) < 1:
        raise SettingsError(f"linear_weight: expected [V, D], at least [1, 1], got {described(weight)}")
    if input.ndim < 2 or input.shape[-1] != weight.shape[1]:
        raise SettingsError(
            f"input: expected [..., {weight.shape[1]}] for linear_weight {list(weight.shape)}, "
            f"got {described(input)}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise SettingsError(f"linear_bias: expected [{weight.shape[0]}], got {described(bias)}")
    devices = {str(x.device) for x in (input, weight, bias) if x is not None}
    if len(devices) > 1:
        raise SettingsError(f"input, linear_weight and linear_bias are on {', '.join(sorted(devices))}; move")


def check_dtypes(input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    if input.dtype not in DTYPES or weight.dtype != input.dtype:
        raise SettingsError(
            "input and linear_weight: expected one floating-point type of both, "
            f"got {input.dtype} and {weight.dtype}; cast one of them, or use torch.autocast"
        )
    if bias is not None and bias.dtype not in (weight.dtype, torch.float32):
        raise SettingsError(f"linear_bias: expected {weight.dtype} or torch.float32, got {bias.dtype}")


def described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
