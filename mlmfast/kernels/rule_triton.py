"""Fused linear layer and scoring rule in Triton: log, and power and pseudospherical at alpha 2.

Forward, programs keep their tiles of logits in registers; a second kernel merges what they found. Backward,
gradients of logits exist for one chunk of classes at a time (GRADIENT_BYTES), which cuBLAS multiplies into
the gradients of weight and input: a kernel of ours would need atomics or would compute the logits once per
gradient, and whole matrices give the same bits every time.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mlmfast.kernels.logit_tiles import float32_product, has_float32_product
from mlmfast.kernels.triton.launch import (
    MERGED_ROWS,
    TILES,
    Sweep,
    divide_up,
    on_device_of,
    why_triton_fails,
)

if TYPE_CHECKING:
    from mlmfast.kernels.rules import ScoringRule

GRADIENT_BYTES = 1 << 26
"""Memory for gradients of logits; more only where a chunk would have under LEAST_CHUNK classes."""
LEAST_CHUNK = 512
"""Fewer classes are too few for a matrix product at speed."""


def can_run(input: Tensor, weight: Tensor, rule: ScoringRule) -> str | None:
    """None if it can, else why not, in one clause."""
    if rule.alpha != 2:
        return f"it computes alpha 2, not {rule.alpha}"
    return triton_lacks(input, weight)


def triton_lacks(input: Tensor, weight: Tensor) -> str | None:
    """Why no Triton kernel of logits runs on these tensors here, or None."""
    if input.dtype not in TILES or weight.dtype != input.dtype:
        return f"it computes in float32, bfloat16 or float16, not {input.dtype} with {weight.dtype}"
    if not input.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return f"it needs a CUDA device, not {input.device}"
    if input.is_cuda and torch.cuda.get_device_capability(input.device) < (8, 0):
        return "it needs a GPU of compute capability 8.0 or later"
    if input.is_cuda and not has_float32_product(input):
        return "it needs torch 2.8 or later"
    return why_triton_fails()


def forward(
    input: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, rule: ScoringRule, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """The loss of every row and the coefficients of its gradient.

    input [N, D], weight [V, D] of its dtype, bias [V] or None, target int64[N], all contiguous and on one
    device. Returns float32[N], 0 where target is ignore_index, and float32[N, 7]: lse, A, B, C, U, D,
    target gradient.
    """
    from mlmfast.kernels.triton.coefficients import coefficient_kernel
    from mlmfast.kernels.triton.statistics import statistics_kernel
    from mlmfast.kernels.triton.tail import add_tail_kernel, tail_kernel

    sweep = Sweep.of(input, weight)
    loss = input.new_empty(sweep.num_rows, dtype=torch.float32)
    coefficients = input.new_empty((sweep.num_rows, 7), dtype=torch.float32)
    if sweep.num_rows == 0:
        return loss, coefficients
    statistics = input.new_empty((5, sweep.num_splits, sweep.num_rows), dtype=torch.float32)
    with on_device_of(input):
        statistics_kernel[sweep.grid](
            *(input, weight, bias, target, statistics, *sweep.sizes, sweep.tiles_per_split),
            SUM_LOGITS=rule.name == "log" and rule.smoothing > 0,
            num_warps=sweep.tile.statistics_warps,
            **sweep.constants,
        )
        coefficient_kernel[sweep.merging_grid](
            *(statistics, target, loss, coefficients),
            *(sweep.num_rows, sweep.num_splits, sweep.num_classes, ignore_index, rule.smoothing),
            RULE=rule.family,
            ROWS=MERGED_ROWS,
        )
        if rule.has_masked_log:
            h = rule.smoothing / sweep.num_classes
            tail = torch.empty_like(statistics[:2])
            tail_kernel[sweep.grid](
                *(input, weight, bias, coefficients, tail, *sweep.sizes, sweep.tiles_per_split, math.log(h)),
                num_warps=sweep.tile.num_warps,
                **sweep.constants,
            )
            add_tail_kernel[sweep.merging_grid](
                *(tail, statistics[4], loss, coefficients, sweep.num_rows, sweep.num_splits, h),
                ROWS=MERGED_ROWS,
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
    """
    from mlmfast.kernels.triton.gradient import gradient_kernel

    sweep = Sweep.of(input, weight)
    grad_input = torch.zeros_like(input, dtype=torch.float32) if needs[0] else None
    grad_weight = torch.zeros_like(weight) if needs[1] else None
    grad_bias = torch.zeros_like(bias) if needs[2] and bias is not None else None
    chunk = chunk_of_classes(sweep, input.element_size())
    # Rounded by torch where there is no GPU: the interpreter would cut bfloat16 off instead.
    gradient_dtype = torch.float32 if sweep.interpreted else input.dtype
    gradient = input.new_empty((sweep.num_rows, chunk), dtype=gradient_dtype)
    bias_sums = input.new_empty((sweep.num_row_blocks, chunk), dtype=torch.float32)
    for first in range(0, sweep.num_classes if sweep.num_rows else 0, chunk):
        classes = slice(first, min(first + chunk, sweep.num_classes))
        width = classes.stop - first
        with on_device_of(input):
            gradient_kernel[sweep.num_row_blocks, divide_up(width, sweep.tile.classes)](
                *(input, weight, bias, target, coefficients, grad_loss, gradient, bias_sums),
                *sweep.sizes,
                *(first, chunk, rule.smoothing / sweep.num_classes),
                SUMS_FOR_BIAS=grad_bias is not None,
                num_warps=sweep.tile.num_warps,
                **sweep.constants,
            )
        part = gradient[:, :width].to(input.dtype)
        if grad_input is not None:
            grad_input += float32_product(part, weight[classes])
        if grad_weight is not None:
            grad_weight[classes] = float32_product(part.T, input)
        if grad_bias is not None:
            grad_bias[classes] = bias_sums[:, :width].sum(dim=0)
    return None if grad_input is None else grad_input.to(input.dtype), grad_weight, grad_bias


def chunk_of_classes(sweep: Sweep, element_size: int) -> int:
    """How many classes' gradients are held at a time: a multiple of the tile's, at least one tile."""
    classes = sweep.tile.classes
    chunk = max(LEAST_CHUNK, GRADIENT_BYTES // (max(sweep.num_rows, 1) * element_size))
    return min(chunk // classes, divide_up(sweep.num_classes, classes)) * classes
