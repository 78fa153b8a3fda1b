"""The GPU and the versions of what runs on it."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib import metadata
from typing import Any

import torch

PACKAGES = (
    *("torch", "triton", "transformers", "numpy", "liger-kernel", "cut-cross-entropy"),
    *("flash-attn", "onnxruntime", "onnxruntime-gpu", "onnx", "onnxscript"),
)


def run(dry: bool, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "packages": {name: version(name) for name in PACKAGES},
    }
    if dry:
        return found | {"device": "cpu"}
    properties = torch.cuda.get_device_properties(0)
    return found | {
        "device": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_mb": properties.total_memory >> 20,
    }


def version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"
