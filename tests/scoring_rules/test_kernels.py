"""Every kernel that can run here against the float64 reference."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from rule_problems import (
    DEVICE,
    IGNORED,
    KERNEL_RULES,
    Problem,
    available_impls,
    by_kernel,
    check_result,
    make_problem,
    rule_id,
)
from tolerances import NEAR_ONE, tolerance_of

from mlmfast.kernels.impl_choice import load_impl
from mlmfast.kernels.rules import ScoringRule

SMALL = [(1, 7), (2, 64), (251, 384)]
"""(V, D)"""
LARGE = [
    (251, 1000, "brier"),
    (30522, 384, "log"),
    (128256, 64, "brier"),
    (250002, 7, "log"),
    (250002, 7, "spherical"),
]
"""Each takes seconds, most of them in the reference."""
DTYPES = (torch.float32, torch.bfloat16)
CASES = [(impl, dtype) for dtype in DTYPES for impl in available_impls(dtype)]
every_impl = pytest.mark.parametrize("impl", available_impls())
every_case = pytest.mark.parametrize(
    ("impl", "dtype"), CASES, ids=[f"{impl}-{str(dtype).removeprefix('torch.')}" for impl, dtype in CASES]
)
every_rule = pytest.mark.parametrize("rule", KERNEL_RULES, ids=rule_id)


def kernel(impl: str) -> ModuleType:
    return load_impl("linear_scoring_rule_loss", impl)


@every_case
@every_rule
@pytest.mark.parametrize(("vocab_size", "num_features"), SMALL)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
def test_small_vocabularies(
    impl: str, dtype: torch.dtype, rule: ScoringRule, vocab_size: int, num_features: int, bias: bool
) -> None:
    problem = make_problem(vocab_size, num_features, 37, dtype=dtype, bias=bias, num_ignored=3)
    check_result(by_kernel(kernel(impl), problem, rule), problem, rule, tolerance_of(impl, dtype))


@every_case
@pytest.mark.parametrize(("vocab_size", "num_features", "name"), LARGE)
def test_large_vocabularies(
    impl: str, dtype: torch.dtype, vocab_size: int, num_features: int, name: str
) -> None:
    rule = ScoringRule(name, smoothing=0.1)
    problem = make_problem(vocab_size, num_features, 3, dtype=dtype)
    check_result(by_kernel(kernel(impl), problem, rule), problem, rule, tolerance_of(impl, dtype))


@every_case
@every_rule
@pytest.mark.parametrize("num_rows", [0, 1, 2])
def test_few_rows(impl: str, dtype: torch.dtype, rule: ScoringRule, num_rows: int) -> None:
    problem = make_problem(251, 7, num_rows, dtype=dtype, num_ignored=0)
    check_result(by_kernel(kernel(impl), problem, rule), problem, rule, tolerance_of(impl, dtype))


@every_impl
@every_rule
def test_all_rows_ignored(impl: str, rule: ScoringRule) -> None:
    problem = make_problem(251, 7, 4, num_ignored=4)
    found = by_kernel(kernel(impl), problem, rule)
    assert all(torch.count_nonzero(part) == 0 for part in found)


@every_impl
def test_coefficients_of_an_ignored_row(impl: str) -> None:
    problem = make_problem(251, 7)
    _, coefficients = kernel(impl).forward(
        problem.input, problem.weight, problem.bias, problem.target, ScoringRule("brier"), IGNORED
    )
    assert coefficients.shape == (5, 7)
    assert coefficients.dtype == torch.float32
    assert coefficients[0].tolist() == [float("inf"), 0, 0, 0, 0, 0, 0]
    assert coefficients[1:].isfinite().all()


@every_impl
def test_large_logits(impl: str) -> None:
    """Up to about 60; the coefficients hold the log-sum-exp in float32, which tells on the gradients."""
    for rule in KERNEL_RULES:
        problem = make_problem(251, 64, 32, scale=15.0)
        check_result(by_kernel(kernel(impl), problem, rule), problem, rule, tolerance_of(impl, torch.float32))


@every_impl
@pytest.mark.parametrize("complement", [1e-11, 1e-7, 1e-3])
@pytest.mark.parametrize("name", ["log", "brier", "spherical"])
def test_near_certainty(impl: str, name: str, complement: float) -> None:
    """1 - p_y and the gradients it decides keep their digits: against the closed forms in float64."""
    logits = torch.tensor([-1.0, 0.0, 0.5, -40.0, -2.0], dtype=torch.float64)
    target = 1
    others = torch.arange(5) != target
    logits[target] = torch.logsumexp(logits[others], 0) - torch.log(torch.tensor(complement)).double()
    logits = logits.bfloat16().double()  # so that no product rounds them
    rest = torch.exp(logits[others] - logits[target]).sum()
    p = torch.exp(logits - logits[target]) / (1 + rest)
    q = rest / (1 + rest)
    others_squared = p[others].square().sum()
    norm = (p[target] ** 2 + others_squared).sqrt()
    # Per class but the target, then of the target; nothing is subtracted that is close.
    if name == "log":
        wanted, of_target = p, -q
    elif name == "brier":
        wanted = 2 * p * (p[target] * q - others_squared + p)
        of_target = -2 * p[target] * (q**2 + others_squared)
    else:
        wanted = p[target] / norm**3 * p**2
        of_target = -p[target] * others_squared / norm**3
    wanted[target] = of_target
    problem = Problem(
        input=torch.ones(1, 1, device=DEVICE),
        weight=logits.float()[:, None].to(DEVICE),
        bias=torch.zeros(5, device=DEVICE),
        target=torch.tensor([target], device=DEVICE),
        grad_loss=torch.ones(1, device=DEVICE),
    )
    found = by_kernel(kernel(impl), problem, ScoringRule(name))
    assert found.grad_bias is not None
    normal = wanted.abs() > torch.finfo(torch.float32).tiny
    assert normal[target]
    relative = (found.grad_bias.cpu().double() / wanted - 1).abs()[normal]
    assert relative.max() < NEAR_ONE
    if name == "log":
        assert abs(float(found.losses) / float(torch.log1p(rest)) - 1) < NEAR_ONE


@every_impl
@every_rule
def test_inputs_are_not_written_to(impl: str, rule: ScoringRule) -> None:
    problem = make_problem(251, 64)
    before = [tensor.clone() for tensor in problem.tensors()]
    by_kernel(kernel(impl), problem, rule)
    assert all(torch.equal(*pair) for pair in zip(problem.tensors(), before, strict=True))


@every_impl
@every_rule
def test_repeated_calls_agree_to_the_bit(impl: str, rule: ScoringRule) -> None:
    problem = make_problem(251, 64, 70)
    first, again = (by_kernel(kernel(impl), problem, rule) for _ in range(2))
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))


@every_impl
@pytest.mark.parametrize("needed", [0, 1, 2])
def test_only_what_is_needed(impl: str, needed: int) -> None:
    problem, rule = make_problem(251, 64), ScoringRule("spherical", smoothing=0.1)
    tensors = problem.input, problem.weight, problem.bias, problem.target
    _, coefficients = kernel(impl).forward(*tensors, rule, IGNORED)
    needs = tuple(index == needed for index in range(3))
    alone = kernel(impl).backward(problem.grad_loss, *tensors, coefficients, rule, needs)
    together = by_kernel(kernel(impl), problem, rule)[1:]
    for index, gradient in enumerate(alone):
        assert gradient is None if index != needed else torch.equal(gradient, together[index])


@every_impl
@every_rule
def test_nan_is_not_hidden(impl: str, rule: ScoringRule) -> None:
    problem = make_problem(251, 64, num_ignored=0)
    problem.input[2, 3] = torch.nan
    losses = by_kernel(kernel(impl), problem, rule).losses
    assert losses.isnan().tolist() == [False, False, True, False, False]


@every_impl
@pytest.mark.parametrize("name", ["log", "brier", "spherical"])
def test_impossible_classes(impl: str, name: str) -> None:
    """A bias of -inf takes a class out: probability 0, gradient 0."""
    rule = ScoringRule(name)
    problem = make_problem(251, 64, num_ignored=0)
    assert problem.bias is not None
    problem.target[:] = torch.arange(5, device=DEVICE)
    problem.bias[100:] = -torch.inf
    found = by_kernel(kernel(impl), problem, rule)
    problem.weight, problem.bias = problem.weight[:100].contiguous(), problem.bias[:100].contiguous()
    fewer = by_kernel(kernel(impl), problem, rule)
    torch.testing.assert_close(found.losses, fewer.losses)
    assert found.grad_bias is not None
    torch.testing.assert_close(found.grad_bias[:100], fewer.grad_bias)
    assert torch.count_nonzero(found.grad_bias[100:]) == 0
    assert torch.count_nonzero(found.grad_weight[100:]) == 0
