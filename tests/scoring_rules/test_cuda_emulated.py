"""impl "cuda" from Python on the CPU: its library compiled as ordinary C++, with CUDA emulated."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rule_problems import (
    DEVICE,
    IGNORED,
    KERNEL_RULES,
    by_kernel,
    check_result,
    make_problem,
    rule_id,
)
from tolerances import OF_DTYPE

from mlmfast.errors import MissingExtraError, SettingsError
from mlmfast.kernels import cuda_library, rule_cuda
from mlmfast.kernels.rules import ScoringRule

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])


@pytest.fixture
def fresh_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No library is loaded yet, and none afterwards."""
    cuda_library.load_library.cache_clear()
    yield
    cuda_library.load_library.cache_clear()


@pytest.fixture
def emulated(emulated_library: Path, fresh_library: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cuda_library.ENVIRONMENT_VARIABLE, str(emulated_library))
    monkeypatch.setattr(rule_cuda, "on_device_of", lambda tensor: contextlib.nullcontext())
    monkeypatch.setattr(rule_cuda, "stream_of", lambda tensor: ctypes.c_void_p())
    if DEVICE != "cpu":
        pytest.skip("a GPU is here: test_kernels runs the kernels themselves")


@DTYPES
@pytest.mark.parametrize("rule", KERNEL_RULES, ids=rule_id)
def test_against_the_reference(emulated: None, rule: ScoringRule, dtype: torch.dtype) -> None:
    problem = make_problem(251, 40, 9, dtype=dtype)
    check_result(by_kernel(rule_cuda, problem, rule), problem, rule, OF_DTYPE[dtype])


@DTYPES
def test_families_at_alpha_2_are_their_members(emulated: None, dtype: torch.dtype) -> None:
    problem = make_problem(40, 16, dtype=dtype)
    for family, member in (("power", "brier"), ("pseudospherical", "spherical")):
        results = [
            by_kernel(rule_cuda, problem, ScoringRule(name, smoothing=0.1)) for name in (family, member)
        ]
        assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


@DTYPES
def test_without_rows_or_bias(emulated: None, dtype: torch.dtype) -> None:
    rule = ScoringRule("brier", smoothing=0.1)
    for num_rows, bias in ((0, True), (3, False)):
        problem = make_problem(30, 8, num_rows, dtype=dtype, bias=bias, num_ignored=0)
        check_result(by_kernel(rule_cuda, problem, rule), problem, rule, OF_DTYPE[dtype])


@pytest.mark.parametrize("needed", [0, 1, 2])
def test_only_what_is_needed(emulated: None, needed: int) -> None:
    problem, rule = make_problem(30, 8), ScoringRule("log")
    tensors = problem.input, problem.weight, problem.bias, problem.target
    _, coefficients = rule_cuda.forward(*tensors, rule, IGNORED)
    needs = needed == 0, needed == 1, needed == 2
    gradients = rule_cuda.backward(problem.grad_loss, *tensors, coefficients, rule, needs)
    assert [gradient is not None for gradient in gradients] == list(needs)


def test_a_failure_of_the_library_is_raised(emulated: None) -> None:
    problem, rule = make_problem(30, 8), ScoringRule("log")
    object.__setattr__(rule, "smoothing", 1.5)
    with pytest.raises(RuntimeError, match="smoothing: expected 0 up to"):
        rule_cuda.forward(problem.input, problem.weight, problem.bias, problem.target, rule, IGNORED)


def test_what_it_cannot_run(fresh_library: None) -> None:
    half, double = torch.zeros(2, 3, dtype=torch.float16), torch.zeros(2, 3, dtype=torch.float64)
    single = torch.zeros(2, 3)
    assert "alpha 2, not 1.5" in str(rule_cuda.can_run(single, single, ScoringRule("power", 1.5)))
    for wrong in (half, double):
        assert "float32 or bfloat16" in str(rule_cuda.can_run(wrong, wrong, ScoringRule("log")))
    assert "CUDA device, not cpu" in str(rule_cuda.can_run(single, single, ScoringRule("log")))


def test_no_library(fresh_library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(cuda_library.ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setattr(cuda_library, "PACKAGE", tmp_path / "mlmfast")
    with pytest.raises(MissingExtraError, match=r"MLMFAST_CUDA=ON.*MLMFAST_CUDA_LIBRARY"):
        cuda_library.load_library()


def test_the_library_of_a_source_tree_is_found(
    fresh_library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(cuda_library.ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setattr(cuda_library, "PACKAGE", tmp_path / "mlmfast")
    for folder in (tmp_path / "build" / "cuda", tmp_path / "mlmfast"):
        folder.mkdir(parents=True)
        (folder / cuda_library.FILE_NAME).touch()
        assert cuda_library.library_path() == folder / cuda_library.FILE_NAME


@pytest.mark.parametrize("content", [None, b"no library"])
def test_a_wrong_library(
    fresh_library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "wrong.so"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv(cuda_library.ENVIRONMENT_VARIABLE, str(path))
    with pytest.raises(SettingsError, match=r"wrong\.so"):
        cuda_library.load_library()
