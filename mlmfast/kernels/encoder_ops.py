"""Which impl carries out the packed encoder's operators; encoder_torch says what each computes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

from mlmfast.errors import SettingsError
from mlmfast.kernels.encoder_inputs import EmbeddingTables, Layout, Norm
from mlmfast.kernels.triton.launch import why_triton_fails


@dataclass(frozen=True)
class EncoderOperators:
    impl: str
    embed_inputs: Callable[[Layout, EmbeddingTables], Tensor]
    expand_index: Callable[[Layout], Tensor]
    expand_rows: Callable[[Tensor, Tensor], Tensor]
    add_norm: Callable[[Tensor, Tensor | None, Norm | None, bool, torch.dtype], Tensor]
    activation: Callable[[Tensor, str, bool], Tensor]
    linear_activation: Callable[[Tensor, Tensor, Tensor | None, str, bool], Tensor]
    rotate: Callable[[Tensor, Tensor, Tensor, Tensor], None]
    attention: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, int, int | None, int], Tensor]


def choose_encoder_impl(device: torch.device) -> str:
    """`triton` on a GPU and under Triton's interpreter (TRITON_INTERPRET=1), else `torch`.

    Raises SettingsError for a GPU that the kernels do not run on."""
    if device.type == "cpu":
        return "triton" if os.environ.get("TRITON_INTERPRET") == "1" else "torch"
    reason = why_no_kernels(device)
    if reason is not None:
        raise SettingsError(f"device {str(device)!r}: {reason}; use engine='torch'")
    return "triton"


def why_no_kernels(device: torch.device) -> str | None:
    """None if the Triton kernels run on this device, else why not, in one clause."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return "the kernels of the packed engine are for CUDA devices"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "the packed engine needs a GPU of compute capability 8.0 or later"
    reason = why_triton_fails()
    return None if reason is None else f"the packed engine needs triton, and {reason}"


def why_no_model(impl: str, head_size: int) -> str | None:
    """None if this impl runs models with attention heads of this size, else why not, in one clause."""
    if impl != "triton":
        return None
    from mlmfast.kernels import attention_triton

    return attention_triton.can_run(head_size)


def encoder_operators(impl: str) -> EncoderOperators:
    """impl: `torch` or `triton`."""
    module: ModuleType
    if impl == "triton":
        from mlmfast.kernels import attention_triton, encoder_triton

        module, attention = encoder_triton, attention_triton.attention
    else:
        from mlmfast.kernels import encoder_torch

        module, attention = encoder_torch, encoder_torch.attention
    return EncoderOperators(
        impl=impl,
        embed_inputs=module.embed_inputs,
        expand_index=module.expand_index,
        expand_rows=module.expand_rows,
        add_norm=module.add_norm,
        activation=module.activation,
        linear_activation=module.linear_activation,
        rotate=module.rotate,
        attention=attention,
    )
