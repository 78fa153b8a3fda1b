"""The device of a name, what there is to say of it, and the threads of torch on a CPU."""

from __future__ import annotations

import torch

from mlmfast.errors import SettingsError
from mlmfast.types import JsonRecord


def choose_device(device: str | None) -> torch.device:
    """The device named, else the first GPU, else the CPU; a GPU with its number. Raises SettingsError."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(1, device=device).device
    except (RuntimeError, AssertionError) as error:
        raise SettingsError(
            f"device {device!r} cannot be used here ({str(error).splitlines()[0]}); "
            "expected 'cpu', or 'cuda' where there is a GPU"
        ) from error


def describe_device(device: torch.device) -> JsonRecord:
    """What a result file must say of it: `tf32` only where that is on."""
    described: JsonRecord = {"device": str(device)}
    return described | {"tf32": True} if device.type == "cuda" and multiplies_in_tf32() else described


def multiplies_in_tf32() -> bool:
    """Whether the program lets torch round the float32 inputs of a GPU's matrix products to TF32's 10 bits;
    by itself torch does not."""
    matmul = torch.backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):  # from torch 2.9 on, where asking for allow_tf32 may raise
        return bool(matmul.fp32_precision == "tf32")
    return bool(matmul.allow_tf32)


def use_one_thread(device: torch.device) -> None:
    """In the calling thread, one of several workers: barriers between threads cost more than they save."""
    if device.type == "cpu":
        # Asking first makes torch's own per-thread start-up happen before ours, not after.
        torch.get_num_threads()
        torch.set_num_threads(1)
