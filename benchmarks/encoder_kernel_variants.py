"""The Triton kernels of the packed encoder (but attention) as launches compile them, for triton_resources."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from kernel_variant import Variant

from mlmfast.kernels.encoder_torch import ACTIVATIONS
from mlmfast.kernels.triton.activation import activation_kernel
from mlmfast.kernels.triton.embedding import embed_kernel
from mlmfast.kernels.triton.expansion import expand_kernel, mask_index_kernel, text_index_kernel
from mlmfast.kernels.triton.normalisation import add_norm_kernel
from mlmfast.kernels.triton.rotation import rotate_kernel
from mlmfast.kernels.triton.row_tiles import INDEX_ELEMENTS, RowTile, parts_of_rows, whole_rows

DTYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16"}
HIDDEN_SIZES = (384, 768, 1024, 4096)
"""Of the kernels that hold whole rows."""
HIDDEN_SIZE, HEAD_SIZE = 768, 64
"""Of the others."""
OF_THE_BATCH = (
    *("text_ids_ptr", "text_types_ptr", "text_offsets_ptr", "row_text_ptr", "row_starts_ptr"),
    *("mask_positions_ptr", "mask_offsets_ptr", "index_ptr", "table_positions_ptr", "positions_ptr"),
)
TABLES = ("word_ptr", "type_ptr", "position_ptr")
OF_THE_LAYER = ("delta_ptr", "y_ptr", "pool_ptr", "output_ptr", "inner_ptr", "vectors_ptr")
PACKED = ("row_scale_ptr", "table_positions_ptr")
"""What a shared pool lacks."""


def variants(dtype: torch.dtype, capability: tuple[int, int]) -> Iterator[Variant]:
    """dtype: of the tables, and of what goes into and comes from products of matrices."""
    types = dict.fromkeys(OF_THE_BATCH, "*i32") | {"eps": "fp32"}
    types |= dict.fromkeys(TABLES + OF_THE_LAYER, DTYPES[dtype])
    for size in HIDDEN_SIZES:
        constants, options = constants_and_options(whole_rows(size))
        shared = dict.fromkeys(("index_ptr", *PACKED))
        yield Variant(f"embed-shared-{size}", embed_kernel, constants | shared, options, types)
        packed = {"norm_weight_ptr": None, "norm_bias_ptr": None}
        yield Variant(f"embed-packed-{size}", embed_kernel, constants | packed, options, types)
        for name, in_place in (("post", True), ("pre", False)):
            constants["NORMALISE_IN_PLACE"] = in_place
            yield Variant(f"add-norm-{name}-{size}", add_norm_kernel, dict(constants), options, types)
    constants, options = constants_and_options(parts_of_rows(HIDDEN_SIZE))
    yield Variant("expand", expand_kernel, constants, options, types)
    for kind in ACTIVATIONS:
        for name, gated in (("", False), ("-gated", True)):
            chosen = {"KIND": kind, "GATED": gated}
            yield Variant(f"{kind}{name}", activation_kernel, constants | chosen, options, types)
    rotation = {"HALF": HEAD_SIZE // 2}
    yield Variant(f"rotate-{HEAD_SIZE}", rotate_kernel, constants | rotation, options, types)
    if dtype == torch.float32:  # these see no other
        elements = {"ELEMENTS": INDEX_ELEMENTS}
        yield Variant("text-index", text_index_kernel, elements, {}, types)
        yield Variant("mask-index", mask_index_kernel, elements, {}, types)


def constants_and_options(tile: RowTile) -> tuple[dict[str, object], dict[str, int]]:
    constants = dict(tile.constants)
    return constants, {"num_warps": constants.pop("num_warps")}
