"""Which activations are the end of a product on a GPU; encoder_kernel_checks has their values there."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mlmfast.kernels import encoder_torch, encoder_triton

HALF = torch.bfloat16


class OnGpu(torch.Tensor):
    """A tensor that says it is on a GPU."""

    is_cuda = True  # type: ignore[assignment]


def product(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """x, weight and bias."""
    torch.manual_seed(0)
    weight, bias = torch.randn(4, 8, dtype=dtype), torch.randn(4, dtype=dtype)
    return x.to(dtype).as_subclass(OnGpu), weight, bias


def on_cuda(bias: Tensor, x: Tensor, weight: Tensor, *, use_gelu: bool) -> Tensor:
    """What torch._addmm_activation computes there: on a CPU its gelu is the one with erf."""
    return encoder_torch.ACTIVATIONS["gelu_tanh" if use_gelu else "relu"](torch.addmm(bias, x, weight))


@pytest.mark.parametrize("kind", encoder_triton.EPILOGUES)
def test_what_cublas_has_is_one_call(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "_addmm_activation", on_cuda)
    monkeypatch.delattr(encoder_triton, "activation")
    x, weight, bias = product(torch.randn(5, 8), HALF)
    found = encoder_triton.linear_activation(x, weight, bias, kind, False)
    expected = encoder_torch.linear_activation(x.as_subclass(Tensor), weight, bias, kind, False)
    torch.testing.assert_close(found.as_subclass(Tensor), expected)


@pytest.mark.parametrize(
    ("kind", "gated", "dtype", "has_bias"),
    [
        ("gelu", False, HALF, True),
        ("silu", False, HALF, True),
        ("gelu_tanh", True, HALF, True),
        ("gelu_tanh", False, torch.float32, True),
        ("gelu_tanh", False, HALF, False),
    ],
)
def test_the_rest_is_a_kernel_of_ours(
    kind: str, gated: bool, dtype: torch.dtype, has_bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch, "_addmm_activation")
    monkeypatch.setattr(encoder_triton, "activation", encoder_torch.activation)
    x, weight, bias = product(torch.randn(5, 8), dtype)
    arguments = (weight, bias if has_bias else None, kind, gated)
    found = encoder_triton.linear_activation(x, *arguments)
    expected = encoder_torch.linear_activation(x.as_subclass(Tensor), *arguments)
    assert torch.equal(found.as_subclass(Tensor), expected)
