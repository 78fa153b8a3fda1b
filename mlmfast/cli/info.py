"""`mlmfast info`: versions, CPU features, engines."""

from __future__ import annotations

import importlib.util
import platform
from importlib.metadata import PackageNotFoundError, version

import typer

import mlmfast

PACKAGES = (
    "numpy",
    "tokenizers",
    "safetensors",
    "huggingface_hub",
    "torch",
    "transformers",
    "triton",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "onnxruntime-gpu",
)


def info() -> None:
    """Print versions, CPU features and the engines available here."""
    from mlmfast import _core
    from mlmfast.kernels.head import chosen_isa
    from mlmfast.models.source import EMBEDDED_MODEL, EMBEDDED_STUDENT
    from mlmfast.workers import available_cores

    lines = {
        "mlmfast": mlmfast.__version__,
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "cores": str(available_cores()),
        "cpu features": " ".join(_core.cpu_features()) or "none known",
        "kernels": f"{chosen_isa()} (available: {', '.join(_core.available_isas())})",
        "engines": _engines(),
        "embedded models": f"{EMBEDDED_MODEL}, {EMBEDDED_STUDENT}",
        **{name: _version(name) for name in PACKAGES},
    }
    width = max(map(len, lines))
    for name, value in lines.items():
        typer.echo(f"{name:<{width}}  {value}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _engines() -> str:
    return f"native (cpu); {_packed_engine()}; {_torch_engine()}; {_onnx_engine()}"


def _packed_engine() -> str:
    if importlib.util.find_spec("torch") is None:
        return "packed needs torch: pip install 'mlmfast[gpu]'"
    import torch

    from mlmfast.kernels.encoder_ops import why_no_kernels

    reason = why_no_kernels(torch.device("cuda"))
    return f"packed ({torch.cuda.get_device_name()})" if reason is None else f"packed (cpu; {reason})"


def _torch_engine() -> str:
    missing = [p for p in ("torch", "transformers") if importlib.util.find_spec(p) is None]
    if missing:
        return f"torch needs {', '.join(missing)}: pip install 'mlmfast[torch]'"
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return f"torch ({device})"


def _onnx_engine() -> str:
    if importlib.util.find_spec("onnxruntime") is None:
        return "onnx needs onnxruntime: pip install 'mlmfast[onnx]'"
    import onnxruntime

    names = [p.removesuffix("ExecutionProvider") for p in onnxruntime.get_available_providers()]
    return f"onnx ({', '.join(names)})"
