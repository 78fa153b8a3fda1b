"""The Triton kernels of the scoring rules as their launches compile them, for triton_resources."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from kernel_variant import Variant

from mlmfast.kernels.triton.coefficients import coefficient_kernel
from mlmfast.kernels.triton.gradient import gradient_kernel
from mlmfast.kernels.triton.launch import MERGED_ROWS, tile_shape
from mlmfast.kernels.triton.statistics import statistics_kernel
from mlmfast.kernels.triton.tail import add_tail_kernel, tail_kernel

DTYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16"}
OF_THE_LAYER = ("input_ptr", "weight_ptr", "bias_ptr", "gradient_ptr")
FLOATS = ("h", "log_h", "smoothing")


def variants(dtype: torch.dtype, capability: tuple[int, int]) -> Iterator[Variant]:
    """Those that see dtype; the ones that see no logits are listed with float32."""
    tile = tile_shape(dtype, capability)
    shape = {"ROWS": tile.rows, "CLASSES": tile.classes, "FEATURES": tile.features}
    shape["PRODUCT_IN_FLOAT32"] = False
    types = {"target_ptr": "*i64"} | dict.fromkeys(OF_THE_LAYER, DTYPES[dtype])
    types |= dict.fromkeys(FLOATS, "fp32")
    first, second = (
        {"num_warps": warps, "num_stages": tile.num_stages}
        for warps in (tile.statistics_warps, tile.num_warps)
    )
    yield Variant("statistics", statistics_kernel, {**shape, "SUM_LOGITS": True}, first, types)
    yield Variant("tail", tail_kernel, shape, second, types)
    yield Variant("gradient", gradient_kernel, {**shape, "SUMS_FOR_BIAS": True}, second, types)
    if dtype == torch.float32:
        merging = {"ROWS": MERGED_ROWS}
        for rule in ("log", "power", "pseudospherical"):
            yield Variant(f"coefficients-{rule}", coefficient_kernel, {**merging, "RULE": rule}, {}, types)
        yield Variant("add-tail", add_tail_kernel, merging, {}, types)
