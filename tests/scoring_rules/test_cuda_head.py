"""The head of libmlmfast_cuda through ctypes, with CUDA emulated on the CPU, and what the library offers."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mlmfast.kernels.reference import target_log_softmax
from mlmfast.types import Float32Array, Int32Array, Int64Array

HEADERS = Path(__file__).resolve().parent.parent.parent / "csrc" / "include" / "mlmfast"
CUDA_HEADERS = sorted(header.name for header in HEADERS.glob("cuda_*.h"))
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", f"-I{HEADERS.parent}"]
FLOAT32 = 0
"""MLMFAST_CUDA_FLOAT32."""
OUTPUTS = ("log_prob", "logit", "entropy", "rank")
Results = dict[str, np.ndarray]


class Problem(ctypes.Structure):
    """mlmfast_cuda_head_problem."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("num_rows", "num_classes", "hidden_size", "num_targets")),
        *((name, ctypes.c_void_p) for name in ("hidden", "weight", "bias", "target_offsets", "target_ids")),
        *((name, ctypes.c_int32) for name in ("type", "bias_type")),
    )


class Outputs(ctypes.Structure):
    """mlmfast_cuda_head_outputs."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("log_prob", "logit", "lse", "entropy", "rank"))


def by_library(
    path: Path,
    hidden: Float32Array,
    weight: Float32Array,
    bias: Float32Array | None,
    target_ids: Int32Array,
    target_offsets: Int64Array,
) -> Results:
    """All outputs, entropy of targets as the reference has it."""
    library = ctypes.CDLL(str(path))
    library.mlmfast_cuda_last_error.restype = ctypes.c_char_p
    arrays = hidden, weight, bias, target_offsets, target_ids
    pointers = [None if array is None else array.ctypes.data for array in arrays]
    sizes = len(hidden), *weight.shape, len(target_ids)
    problem = Problem(*sizes, *pointers, FLOAT32, FLOAT32)
    results: Results = {
        "log_prob": np.empty(len(target_ids), np.float32),
        "logit": np.empty(len(target_ids), np.float32),
        "lse": np.empty(len(hidden), np.float32),
        "entropy": np.empty(len(hidden), np.float32),
        "rank": np.empty(len(target_ids), np.int32),
    }
    outputs = Outputs(*(array.ctypes.data for array in results.values()))
    num_bytes = ctypes.c_int64()
    assert library.mlmfast_cuda_head_scratch(ctypes.byref(problem), ctypes.byref(num_bytes)) == 0
    scratch = np.empty((num_bytes.value + 15) // 16, np.complex128)
    status = library.mlmfast_cuda_head(
        ctypes.byref(problem), ctypes.byref(outputs), ctypes.c_void_p(scratch.ctypes.data), num_bytes, None
    )
    assert status == 0, library.mlmfast_cuda_last_error()
    results["entropy"] = np.repeat(results["entropy"], np.diff(target_offsets))
    return results


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize(("num_rows", "num_classes", "hidden_size"), [(1, 1, 1), (5, 257, 33), (131, 140, 8)])
def test_against_the_reference(
    emulated_library: Path, num_rows: int, num_classes: int, hidden_size: int, has_bias: bool
) -> None:
    random = np.random.default_rng(num_rows)
    hidden = random.normal(size=(num_rows, hidden_size)).astype(np.float32)
    weight = random.normal(size=(num_classes, hidden_size)).astype(np.float32)
    bias = random.normal(size=num_classes).astype(np.float32) if has_bias else None
    target_offsets = np.append(0, np.cumsum(np.arange(1, num_rows + 1) % 4)).astype(np.int64)
    target_ids = random.integers(num_classes, size=target_offsets[-1], dtype=np.int32)
    targets = target_ids, target_offsets
    expected = target_log_softmax(hidden, weight, bias, *targets, outputs=OUTPUTS)
    found = by_library(emulated_library, hidden, weight, bias, *targets)
    for name in OUTPUTS:
        tolerance = 0 if name == "rank" else 2e-5
        np.testing.assert_allclose(
            found[name], getattr(expected, name), rtol=tolerance, atol=tolerance, err_msg=name
        )
    first = target_offsets[:-1][np.diff(target_offsets) > 0]
    lse = (found["logit"] - found["log_prob"])[first]
    np.testing.assert_allclose(found["lse"][np.diff(target_offsets) > 0], lse, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("everywhere", [True, False])
def test_odd_logits_as_the_reference_has_them(emulated_library: Path, bad: float, everywhere: bool) -> None:
    bias = np.linspace(-1, 1, 300, dtype=np.float32)
    bias[slice(None) if everywhere else slice(100, 101)] = bad
    hidden, weight = np.zeros((1, 1), np.float32), np.zeros((300, 1), np.float32)
    targets = np.arange(300, dtype=np.int32), np.array([0, 300])
    expected = target_log_softmax(hidden, weight, bias, *targets, outputs=OUTPUTS)
    found = by_library(emulated_library, hidden, weight, bias, *targets)
    for name in OUTPUTS:
        np.testing.assert_allclose(found[name], getattr(expected, name), rtol=2e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("name", CUDA_HEADERS)
def test_the_headers_are_strict_c_and_cpp(tmp_path: Path, name: str) -> None:
    source = tmp_path / "include.c"
    source.write_text(f"#include <mlmfast/{name}>\nint none;\n")
    subprocess.run(["cc", "-std=c99", *STRICT, source], check=True)
    subprocess.run(["c++", "-x", "c++", "-std=c++11", *STRICT, source], check=True)


def test_only_the_api_is_exported(emulated_library: Path) -> None:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", emulated_library], check=True, text=True, stdout=subprocess.PIPE
    ).stdout
    symbols = {line.split()[-1] for line in listed.splitlines() if "mlmfast" in line}
    headers = "".join((HEADERS / name).read_text(encoding="utf-8") for name in CUDA_HEADERS)
    declared = set(re.findall(r"^MLMFAST_CUDA_API .*?(mlmfast_\w+)\(", headers, re.MULTILINE))
    assert len(declared) == 9
    assert symbols == declared
