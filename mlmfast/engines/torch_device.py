"""The device of a name, and the threads of torch on a CPU."""

from __future__ import annotations

import torch

from mlmfast.errors import SettingsError


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


def use_one_thread(device: torch.device) -> None:
    """In the calling thread, one of several workers: barriers between threads cost more than they save."""
    if device.type == "cpu":
        # Asking first makes torch's own per-thread start-up happen before ours, not after.
        torch.get_num_threads()
        torch.set_num_threads(1)
