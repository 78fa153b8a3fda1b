"""linear_scoring_rule_loss under autocast, torch.compile and torch's own checks of operators."""

from __future__ import annotations

import shutil

import pytest
import torch
from rule_problems import (
    DEVICE,
    IGNORED,
    available_impls,
    error_of,
    gradients_of,
    make_problem,
    with_gradients,
)
from tolerances import BFLOAT16, SMALLEST
from torch import Tensor

from mlmfast.functional import linear_scoring_rule_loss, scoring_rule_loss
from mlmfast.kernels.rule_operators import checked_ids, linear_scoring_rule, linear_scoring_rule_backward

every_impl = pytest.mark.parametrize("impl", ["reference", *available_impls()])
BRIER = {"rule": "brier", "smoothing": 0.1}


@every_impl
def test_autocast(impl: str) -> None:
    """Input and weight go to bfloat16, loss and gradients come in float32."""
    problem = make_problem(251, 64, 33)
    input, weight, bias = with_gradients(problem)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        found = linear_scoring_rule_loss(input, weight, problem.target, linear_bias=bias, **BRIER, impl=impl)
    cast = linear_scoring_rule_loss(
        input.bfloat16(), weight.bfloat16(), problem.target, linear_bias=bias, **BRIER, impl=impl
    )
    assert found.dtype == torch.float32
    assert torch.equal(found, cast)
    leaves = input, weight, bias
    for pair in zip(gradients_of(found, *leaves), gradients_of(cast, *leaves), strict=True):
        assert pair[0].dtype == torch.float32
        assert torch.equal(*pair)
    exact = scoring_rule_loss(
        input.bfloat16().double() @ weight.bfloat16().double().T + bias.double(), problem.target, **BRIER
    )
    assert abs(float(found.detach() - exact.detach())) < 1e-6


@every_impl
def test_compilation_without_a_break(impl: str) -> None:
    problem = make_problem(251, 64, 6)
    rows = torch.tensor([1, 2, 5], device=DEVICE)
    input, weight, bias = with_gradients(problem)

    def loss_of(input: Tensor, weight: Tensor, bias: Tensor, target: Tensor, rows: Tensor) -> Tensor:
        return linear_scoring_rule_loss(
            2 * input, weight, target, linear_bias=bias, rows=rows, **BRIER, impl=impl
        )

    compiled = torch.compile(loss_of, fullgraph=True, backend="aot_eager")
    arguments = input, weight, bias, problem.target[rows], rows
    # The compiler has the reference's backward under autocast too, so that its products are bfloat16.
    for autocast, tolerance in ((False, 1e-6), (True, BFLOAT16.gradient)):
        with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=autocast):
            found, wanted = compiled(*arguments), loss_of(*arguments)
        torch.testing.assert_close(found, wanted)
        leaves = input, weight, bias
        for pair in zip(gradients_of(found, *leaves), gradients_of(wanted, *leaves), strict=True):
            assert error_of(*pair, SMALLEST) < tolerance


@pytest.mark.skipif(
    DEVICE == "cpu" and not shutil.which("g++"), reason="torch.compile's inductor needs a C++ compiler"
)
def test_compilation_by_inductor() -> None:
    problem = make_problem(251, 64, 6)
    input, weight, bias = with_gradients(problem)

    def loss_of(input: Tensor, weight: Tensor, bias: Tensor, target: Tensor) -> Tensor:
        return linear_scoring_rule_loss(input.tanh(), weight, target, linear_bias=bias, **BRIER)

    found = torch.compile(loss_of, fullgraph=True)(input, weight, bias, problem.target)
    wanted = loss_of(input, weight, bias, problem.target)
    torch.testing.assert_close(found, wanted)
    for pair in zip(gradients_of(found, input, weight), gradients_of(wanted, input, weight), strict=True):
        torch.testing.assert_close(*pair)


@pytest.mark.parametrize("impl", available_impls())
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize("name", ["log", "brier", "spherical"])
def test_opcheck(impl: str, bias: bool, name: str) -> None:
    problem = make_problem(11, 5, bias=bias)
    tensors = problem.input, problem.weight, problem.bias
    leaves = [None if x is None else x.requires_grad_() for x in tensors]
    settings = name, 2.0, 0.1, True, impl
    torch.library.opcheck(linear_scoring_rule, (*leaves, problem.target, IGNORED, *settings))
    plain = [None if x is None else x.detach() for x in tensors]
    _, coefficients = linear_scoring_rule(*plain, problem.target, IGNORED, *settings)
    for needs in ([True, True, bias], [False, True, False]):
        torch.library.opcheck(
            linear_scoring_rule_backward,
            (problem.grad_loss, *plain, problem.target, coefficients, needs, *settings),
        )


def test_opcheck_of_the_ids() -> None:
    ids = make_problem(11, 5).target
    for checked in (ids, ids.int(), ids.expand(2, 5)):
        torch.library.opcheck(checked_ids, (checked, "target", 11, IGNORED))
