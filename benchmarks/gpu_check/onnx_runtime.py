"""ONNX Runtime, and what exports for it, where they are there."""

from __future__ import annotations

import importlib
from types import ModuleType

from absent import AbsentError

PACKAGES = ("onnxruntime", "onnx", "onnxscript")
"""The second and third write the graphs."""


def onnx_runtime(device: str) -> ModuleType:
    """The module onnxruntime. Raises AbsentError where one of PACKAGES cannot be imported, or where it has no
    execution provider for `cpu` or `cuda`."""
    try:
        runtime, *_ = [importlib.import_module(name) for name in PACKAGES]
    except ImportError as error:
        raise AbsentError(str(error)) from error
    provider, available = f"{device.upper()}ExecutionProvider", runtime.get_available_providers()
    if provider not in available:
        raise AbsentError(f"onnxruntime {runtime.__version__} has no {provider}, but {', '.join(available)}")
    return runtime
