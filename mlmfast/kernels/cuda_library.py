"""libmlmfast_cuda, the CUDA kernels built from csrc/cuda, by ctypes (see cuda_scoring_rules.h).

It is what the environment variable MLMFAST_CUDA_LIBRARY names, or else lies in the package's folder or in
build/cuda of a source tree: cmake -S . -B build/cuda -DMLMFAST_CUDA=ON && cmake --build build/cuda.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

from mlmfast.errors import MissingExtraError, SettingsError

ENVIRONMENT_VARIABLE = "MLMFAST_CUDA_LIBRARY"
FILE_NAME = "libmlmfast_cuda.so"
RULE_VERSION = 1
"""MLMFAST_CUDA_RULE_VERSION."""
PACKAGE = Path(__file__).parent.parent

Pointer = ctypes.c_void_p
ByteCount = ctypes.POINTER(ctypes.c_int64)


class RuleProblem(ctypes.Structure):
    """mlmfast_cuda_rule_problem."""

    _fields_ = (
        ("num_rows", ctypes.c_int64),
        ("num_classes", ctypes.c_int64),
        ("hidden_size", ctypes.c_int64),
        ("input", Pointer),
        ("weight", Pointer),
        ("bias", Pointer),
        ("target", Pointer),
        ("ignore_index", ctypes.c_int64),
        ("type", ctypes.c_int32),
        ("bias_type", ctypes.c_int32),
        ("rule", ctypes.c_int32),
        ("masked_log", ctypes.c_int32),
        ("smoothing", ctypes.c_double),
    )


ProblemPointer = ctypes.POINTER(RuleProblem)
SIGNATURES = {
    "mlmfast_cuda_rule_forward_scratch": (ProblemPointer, ByteCount),
    "mlmfast_cuda_rule_forward": (ProblemPointer, Pointer, Pointer, Pointer, ctypes.c_int64, Pointer),
    "mlmfast_cuda_rule_backward_scratch": (ProblemPointer, ctypes.c_int64, ByteCount),
    "mlmfast_cuda_rule_backward": (ProblemPointer, *(Pointer,) * 6, ctypes.c_int64, Pointer),
}


@cache
def load_library() -> ctypes.CDLL:
    """Raises MissingExtraError where there is none, SettingsError for one that cannot be used."""
    path = library_path()
    try:
        library = ctypes.CDLL(str(path))
        version = library.mlmfast_cuda_rule_version()
    except (OSError, AttributeError) as error:
        raise SettingsError(f"{path}: expected mlmfast's CUDA library, but {error}; build it anew") from error
    if version != RULE_VERSION:
        raise SettingsError(f"{path}: expected version {RULE_VERSION}, got {version}; build it anew")
    library.mlmfast_cuda_last_error.restype = ctypes.c_char_p
    for name, signature in SIGNATURES.items():
        getattr(library, name).argtypes = signature
    return library


def library_path() -> Path:
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    if named:
        if not Path(named).is_file():
            raise SettingsError(f"{ENVIRONMENT_VARIABLE}: expected the path of {FILE_NAME}, got {named!r}")
        return Path(named)
    places = PACKAGE / FILE_NAME, PACKAGE.parent / "build" / "cuda" / FILE_NAME
    for place in places:
        if place.is_file():
            return place
    raise MissingExtraError(
        f"the CUDA kernels need {FILE_NAME}, which is neither at {places[0]} nor at {places[1]}; build it "
        "with cmake -S . -B build/cuda -DMLMFAST_CUDA=ON && cmake --build build/cuda, "
        f"or set {ENVIRONMENT_VARIABLE}"
    )


def call(name: str, *arguments: object) -> None:
    """Calls a function that returns a status; raises RuntimeError with its message if that is not 0."""
    library = load_library()
    function: Callable[..., int] = getattr(library, name)
    if function(*arguments) != 0:
        raise RuntimeError(f"{name}: {library.mlmfast_cuda_last_error().decode()}")


def count_bytes(name: str, *arguments: object) -> int:
    """What a function of the library that says how much memory is needed puts into its last argument."""
    num_bytes = ctypes.c_int64()
    call(name, *arguments, ctypes.byref(num_bytes))
    return num_bytes.value
