"""The Triton kernels of linear_score as its launches compile them, for triton_resources."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from kernel_variant import Variant

from mlmfast.kernels.triton.launch import MERGED_ROWS, tile_shape
from mlmfast.kernels.triton.rank import rank_kernel
from mlmfast.kernels.triton.target_scores import row_kernel, score_kernel, target_sweep_kernel

DTYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16"}
INTEGERS = {
    "key_ptr": "*i64",
    "first_target_ptr": "*i32",
    "row_of_target_ptr": "*i64",
    "target_ids_ptr": "*i64",
}


def variants(dtype: torch.dtype, capability: tuple[int, int]) -> Iterator[Variant]:
    """Those that see dtype; the ones that see no logits are listed with float32."""
    tile = tile_shape(dtype, capability)
    shape = {"ROWS": tile.rows, "CLASSES": tile.classes, "FEATURES": tile.features}
    shape["PRODUCT_IN_FLOAT32"] = False
    first, second = (
        {"num_warps": warps, "num_stages": tile.num_stages}
        for warps in (tile.statistics_warps, tile.num_warps)
    )
    # The bias in float32, as the packed engine has it.
    types = INTEGERS | dict.fromkeys(("input_ptr", "weight_ptr"), DTYPES[dtype])
    for name, sums in (
        ("target-sweep", {"SQUARES": False, "GAPS": False}),
        ("target-sweep-entropy", {"SQUARES": False, "GAPS": True}),
        ("target-sweep-everything", {"SQUARES": True, "GAPS": True}),
    ):
        yield Variant(name, target_sweep_kernel, shape | sums, first, types)
    yield Variant("rank", rank_kernel, shape, second, types | {"partial_ptr": "*i32"})
    if dtype == torch.float32:
        yield Variant("row", row_kernel, {"ROWS": MERGED_ROWS}, {})
        for rule in ("log", "power", "pseudospherical"):
            yield Variant(f"score-{rule}", score_kernel, {"RULE": rule, "TARGETS": MERGED_ROWS}, {}, types)
