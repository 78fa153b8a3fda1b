"""Ahead-of-time compilation of Triton kernels, and what they take of a GPU; needs none."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import attention_kernel_variants
import encoder_kernel_variants
import rule_kernel_variants
import score_kernel_variants
import torch
import triton
from kernel_variant import Variant
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

LISTS = (encoder_kernel_variants, attention_kernel_variants, score_kernel_variants, rule_kernel_variants)
DEFAULT_WARPS = 4
"""Of triton, where a launch names none."""


class Resources(NamedTuple):
    """Of one program, but registers: those are of a thread."""

    registers: int
    stack_bytes: int
    """What registers spilled."""
    shared_bytes: int
    warps: int


def all_variants(dtype: torch.dtype, capability: tuple[int, int]) -> Iterator[Variant]:
    """Every Triton kernel of the project; those that see no dtype, only where it is float32."""
    for kernels in LISTS:
        yield from kernels.variants(dtype, capability)


def source(variant: Variant) -> ASTSource:
    """Arrays aligned to 16 bytes and sizes multiples of 16, where a launch would look whether they are."""
    signature, multiples = {}, {}
    for parameter in variant.kernel.params:
        name = parameter.name
        is_array = name.endswith("_ptr")
        if name in variant.constants:
            signature[name] = "constexpr"
            continue
        signature[name] = variant.types.get(name, "*fp32" if is_array else "i32")
        if is_array or (signature[name] == "i32" and not parameter.do_not_specialize):
            multiples[(parameter.num,)] = [["tt.divisibility", 16]]
    return ASTSource(variant.kernel, signature, variant.constants, multiples)


def resources(variant: Variant, capability: tuple[int, int]) -> Resources:
    target = GPUTarget("cuda", 10 * capability[0] + capability[1], 32)
    compiled = triton.compile(source(variant), target=target, options=variant.options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used: dict[str, Any] = dict(re.findall(r"(REG|STACK):(\d+)", usage))
    warps = variant.options.get("num_warps", DEFAULT_WARPS)
    return Resources(int(used["REG"]), int(used["STACK"]), compiled.metadata.shared, warps)
