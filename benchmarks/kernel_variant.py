"""A Triton kernel as one launch of it is compiled; the lists of kernels and the report on them share this."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Variant(NamedTuple):
    """types: Triton's names for the types of arguments that are neither `*fp32` (those named `_ptr`) nor
    `i32` (the rest)."""

    name: str
    kernel: Any
    constants: dict[str, Any]
    options: dict[str, int]
    types: Mapping[str, str] = MappingProxyType({})
