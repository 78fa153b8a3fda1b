"""Random problems for the scoring-rule kernels, and what they give in float64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from tolerances import SMALLEST, Tolerance
from torch import Tensor

from mlmfast.kernels.impl_choice import IMPLS, why_not
from mlmfast.kernels.rule_reference import rule_losses
from mlmfast.kernels.rules import ScoringRule

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ALPHAS = (1.1, 1.5, 2.0, 3.0)
IGNORED = -100


@dataclass
class Problem:
    """input [N, D], weight [V, D], bias [V] or None, target int64[N], grad_loss [N]."""

    input: Tensor
    weight: Tensor
    bias: Tensor | None
    target: Tensor
    grad_loss: Tensor

    @property
    def needs(self) -> tuple[bool, bool, bool]:
        return True, True, self.bias is not None

    def tensors(self) -> list[Tensor]:
        values = (getattr(self, field.name) for field in fields(self))
        return [value for value in values if value is not None]


class Result(NamedTuple):
    """losses [N] and the gradients of sum(grad_loss * losses)."""

    losses: Tensor
    grad_input: Tensor
    grad_weight: Tensor
    grad_bias: Tensor | None


def make_problem(
    vocab_size: int,
    num_features: int,
    num_rows: int = 5,
    *,
    dtype: torch.dtype = torch.float32,
    scale: float = 3.0,
    bias: bool = True,
    num_ignored: int = 1,
    seed: int = 0,
) -> Problem:
    """scale: the standard deviation of the logits without bias; the first rows are ignored."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    target = torch.randint(vocab_size, (num_rows,), generator=generator)
    target[:num_ignored] = IGNORED
    grad_dtype = torch.float64 if dtype == torch.float64 else torch.float32
    return Problem(
        input=(normal(num_rows, num_features) * scale * num_features**-0.5).to(DEVICE, dtype),
        weight=normal(vocab_size, num_features).to(DEVICE, dtype),
        bias=normal(vocab_size).to(DEVICE, dtype) if bias else None,
        target=target.to(DEVICE),
        grad_loss=normal(num_rows).to(DEVICE, grad_dtype),
    )


def by_reference(problem: Problem, rule: ScoringRule, dtype: torch.dtype = torch.float64) -> Result:
    """The problem's own values, computed in `dtype` by the reference."""
    leaves = [
        None if x is None else x.detach().to(dtype, copy=True).requires_grad_()
        for x in (problem.input, problem.weight, problem.bias)
    ]
    assert leaves[0] is not None
    assert leaves[1] is not None
    logits = torch.nn.functional.linear(leaves[0], leaves[1], leaves[2])
    losses = rule_losses(logits, problem.target, rule, IGNORED)
    losses.backward(problem.grad_loss.to(dtype))
    gradients = [None if leaf is None else leaf.grad for leaf in leaves]
    return Result(losses.detach(), *gradients)


def by_kernel(module: object, problem: Problem, rule: ScoringRule) -> Result:
    """Through a backend module's forward and backward."""
    tensors = problem.input, problem.weight, problem.bias, problem.target
    losses, coefficients = module.forward(*tensors, rule, IGNORED)
    return Result(losses, *module.backward(problem.grad_loss, *tensors, coefficients, rule, problem.needs))


def check_result(found: Result, problem: Problem, rule: ScoringRule, tolerance: Tolerance) -> None:
    """Asserts that it is as close to float64 as the float32 reference, but for the tolerance."""
    exact = by_reference(problem, rule)
    dtype = torch.float64 if problem.input.dtype == torch.float64 else torch.float32
    plain = by_reference(problem, rule, dtype)
    assert (error_of(found.losses, exact.losses, 1.0) <= error_of(plain.losses, exact.losses, 1.0)
            + tolerance.loss)  # fmt: skip
    for name in Result._fields[1:]:
        gradient, wanted, own = (getattr(result, name) for result in (found, exact, plain))
        if wanted is None:
            assert gradient is None
            continue
        allowed = error_of(own, wanted, SMALLEST) + tolerance.gradient
        assert error_of(gradient, wanted, SMALLEST) <= allowed, name


def error_of(found: Tensor, wanted: Tensor, smallest: float) -> float:
    """The largest difference, relative to the largest wanted value but to no less than `smallest`."""
    assert found.shape == wanted.shape
    if not wanted.numel():
        return 0.0
    difference = (found.double() - wanted.double()).abs().max()
    return float(difference / wanted.double().abs().max().clamp(min=smallest))


def all_rules(alphas: tuple[float, ...] = ALPHAS) -> Iterator[ScoringRule]:
    """Every rule, with and without smoothing and masked log, power and pseudospherical at these alphas."""
    for smoothing, masked_log in ((0.0, True), (0.1, False), (0.1, True)):
        if smoothing == 0 or masked_log:
            yield ScoringRule("log", 2.0, smoothing)
        for name in ("brier", "spherical"):
            yield ScoringRule(name, 2.0, smoothing, masked_log)
        for name in ("power", "pseudospherical"):
            for alpha in alphas:
                yield ScoringRule(name, alpha, smoothing, masked_log)


ALL_RULES = tuple(all_rules())
KERNEL_RULES = tuple(all_rules(alphas=()))
"""What every kernel must have."""


def rule_id(rule: ScoringRule) -> str:
    masked = "-masked" if rule.has_masked_log else ""
    return f"{rule.name}-{rule.alpha:g}-{rule.smoothing:g}{masked}"


def available_impls(dtype: torch.dtype = torch.float32) -> list[str]:
    """The impls of linear_scoring_rule_loss that can run here, `auto` and `reference` left out."""
    problem = replace(make_problem(2, 7), bias=None)
    tensors = problem.input.to(dtype), problem.weight.to(dtype)
    return [
        impl
        for impl in IMPLS[2:]
        if why_not("linear_scoring_rule_loss", impl, *tensors, ScoringRule("brier")) is None
    ]


def with_gradients(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """input, weight and bias as leaves of a graph."""
    assert problem.bias is not None
    leaves = [x.clone().requires_grad_() for x in (problem.input, problem.weight, problem.bias)]
    return leaves[0], leaves[1], leaves[2]


def gradients_of(loss: Tensor, *leaves: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, leaves))
