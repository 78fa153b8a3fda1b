"""What is particular to the Triton kernels; test_kernels checks them beside the others.

Run by test_triton under the interpreter, and as it stands where there is a GPU.
"""

from __future__ import annotations

import math

import pytest
import torch
from rule_problems import (
    DEVICE,
    KERNEL_RULES,
    Problem,
    by_kernel,
    check_result,
    make_problem,
    rule_id,
)
from tolerances import OF_DTYPE

from mlmfast.kernels import rule_triton
from mlmfast.kernels.rules import ScoringRule
from mlmfast.kernels.triton.launch import TILES, Sweep, divide_up

every_dtype = pytest.mark.parametrize("dtype", TILES, ids=str)


@pytest.mark.usefixtures("poisoned_memory")
@every_dtype
@pytest.mark.parametrize(
    "rule", [rule for rule in KERNEL_RULES if rule.smoothing and rule.masked_log], ids=rule_id
)
def test_several_splits_and_row_blocks(dtype: torch.dtype, rule: ScoringRule) -> None:
    problem = make_problem(2000, 64, 130, dtype=dtype)
    sweep = Sweep.of(problem.input, problem.weight)
    assert sweep.num_row_blocks > 1
    assert sweep.num_splits > 1
    check_result(by_kernel(rule_triton, problem, rule), problem, rule, OF_DTYPE[dtype])


@pytest.mark.usefixtures("poisoned_memory")
@every_dtype
def test_gradients_by_chunks(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over classes are taken in another order; over rows they are not."""
    problem, rule = make_problem(700, 64, 70, dtype=dtype), ScoringRule("brier", smoothing=0.1)
    whole = by_kernel(rule_triton, problem, rule)
    monkeypatch.setattr(rule_triton, "GRADIENT_BYTES", 1)
    monkeypatch.setattr(rule_triton, "LEAST_CHUNK", 256)
    chunked = by_kernel(rule_triton, problem, rule)
    check_result(chunked, problem, rule, OF_DTYPE[dtype])
    assert chunked.grad_bias is not None
    assert whole.grad_bias is not None
    torch.testing.assert_close(chunked.grad_bias, whole.grad_bias, rtol=0, atol=0)
    torch.testing.assert_close(chunked.grad_weight, whole.grad_weight, rtol=1e-6, atol=1e-6)


def test_chunks_are_bounded_by_bytes() -> None:
    sweep = Sweep.of(torch.empty(5000, 64, device=DEVICE), torch.empty(250_002, 64, device=DEVICE))
    chunk = rule_triton.chunk_of_classes(sweep, element_size=4)
    assert chunk * 5000 * 4 <= rule_triton.GRADIENT_BYTES
    assert chunk >= rule_triton.LEAST_CHUNK
    assert chunk % sweep.tile.classes == 0


@pytest.mark.parametrize("num_rows", [1, 64, 1000, 100_000])
@pytest.mark.parametrize("num_classes", [1, 128, 129, 30522, 250_002])
def test_every_split_has_tiles(num_rows: int, num_classes: int) -> None:
    sweep = Sweep.of(
        torch.empty(1, 7, device=DEVICE).expand(num_rows, 7),
        torch.empty(1, 7, device=DEVICE).expand(num_classes, 7),
    )
    num_tiles = divide_up(num_classes, sweep.tile.classes)
    assert (sweep.num_splits - 1) * sweep.tiles_per_split < num_tiles
    assert num_tiles <= sweep.num_splits * sweep.tiles_per_split


@pytest.mark.parametrize("vocab_size", [2, 129, 300])
def test_equal_logits(vocab_size: int) -> None:
    """Every class reaches the maximum; one of them alone is left out of the sums."""
    problem = Problem(
        input=torch.ones(3, 16, device=DEVICE),
        weight=torch.full((vocab_size, 16), 0.125, device=DEVICE),
        bias=None,
        target=torch.tensor([0, 1, vocab_size - 1], device=DEVICE),
        grad_loss=torch.ones(3, device=DEVICE),
    )
    rule = ScoringRule("log")
    found = by_kernel(rule_triton, problem, rule)
    torch.testing.assert_close(found.losses.cpu(), torch.full((3,), math.log(vocab_size)))
    check_result(found, problem, rule, OF_DTYPE[torch.float32])


@pytest.mark.parametrize("rule", [ScoringRule("log"), ScoringRule("brier"), ScoringRule("spherical")])
def test_an_infinite_logit_has_no_loss(rule: ScoringRule) -> None:
    problem = make_problem(251, 64, num_ignored=0)
    assert problem.bias is not None
    problem.bias[17] = torch.inf
    problem.target[0] = 17
    assert by_kernel(rule_triton, problem, rule).losses.isnan().all()


def test_float32_bias_of_a_bfloat16_layer() -> None:
    problem, rule = make_problem(251, 64, dtype=torch.bfloat16), ScoringRule("spherical", smoothing=0.1)
    assert problem.bias is not None
    problem.bias = problem.bias.float() + 1e-4
    found = by_kernel(rule_triton, problem, rule)
    assert found.grad_bias is not None
    assert found.grad_bias.dtype == torch.float32
    assert found.grad_weight.dtype == torch.bfloat16
    check_result(found, problem, rule, OF_DTYPE[torch.bfloat16])


@pytest.mark.parametrize(
    ("rule", "dtype", "reason"),
    [
        (ScoringRule("power", alpha=1.5), torch.float32, "alpha 2"),
        (ScoringRule("log"), torch.float64, "float64"),
    ],
)
def test_what_it_cannot_run(rule: ScoringRule, dtype: torch.dtype, reason: str) -> None:
    tensors = (torch.zeros(2, 7, device=DEVICE, dtype=dtype) for _ in range(2))
    assert reason in str(rule_triton.can_run(*tensors, rule))
