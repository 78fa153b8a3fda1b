"""What the timings compare on a GPU: our kernels, torch, Liger-Kernel and Cut Cross-Entropy."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from absent import AbsentError
from rule_peers import EAGER, Loss, Problem, Shape, linear_cross_entropy
from torch import Tensor
from torch.nn import functional as F

from mlmfast.functional import ScoringRule, linear_scoring_rule_loss
from mlmfast.kernels.impl_choice import why_not


def make_problem(shape: Shape, dtype: torch.dtype, device: str) -> Problem:
    """As rule_peers.make_problem, drawn on the device."""
    generator = torch.Generator(device).manual_seed(0)

    def normal(*size: int, scale: float = 1.0) -> Tensor:
        values = torch.randn(size, generator=generator, device=device) * scale
        return values.to(dtype).requires_grad_()

    return Problem(
        input=normal(shape.num_rows, shape.num_features),
        weight=normal(shape.vocab_size, shape.num_features, scale=3.0 * shape.num_features**-0.5),
        bias=normal(shape.vocab_size),
        target=torch.randint(shape.vocab_size, (shape.num_rows,), generator=generator, device=device),
    )


def contestants(rule: str) -> Iterator[tuple[str, Loss]]:
    """Name and mean loss of each; one that is absent raises AbsentError when called."""
    for impl in ("triton", "cuda", "torch"):
        yield f"mlmfast {impl}", ours(rule, impl)
    yield "torch eager", EAGER[rule]
    if rule == "log":
        yield "linear_cross_entropy", chunked_cross_entropy
        yield "Liger-Kernel", liger
        yield "Cut Cross-Entropy", cut_cross_entropy
    else:
        yield "mlmfast triton, smoothed", ours(rule, "triton", smoothing=0.1)


def ours(rule: str, impl: str, smoothing: float = 0.0) -> Loss:
    def loss(p: Problem) -> Tensor:
        reason = why_not("linear_scoring_rule_loss", impl, p.input, p.weight, ScoringRule(rule))
        if reason is not None:
            raise AbsentError(reason)
        return linear_scoring_rule_loss(
            p.input, p.weight, p.target, linear_bias=p.bias, rule=rule, smoothing=smoothing, impl=impl
        )

    return loss


def chunked_cross_entropy(p: Problem) -> Tensor:
    if not hasattr(torch.nn, "LinearCrossEntropyOptions"):
        raise AbsentError(f"torch {torch.__version__} has no chunked linear_cross_entropy")
    return linear_cross_entropy(torch.nn.LinearCrossEntropyOptions())(p)


def liger(p: Problem) -> Tensor:
    try:
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy
    except ImportError as error:
        raise AbsentError(str(error)) from error
    loss: Tensor = liger_fused_linear_cross_entropy(p.input, p.weight, p.target, bias=p.bias)
    return loss


def cut_cross_entropy(p: Problem) -> Tensor:
    try:
        from cut_cross_entropy import linear_cross_entropy
    except ImportError as error:
        raise AbsentError(str(error)) from error
    loss: Tensor = linear_cross_entropy(p.input, p.weight, p.target, bias=p.bias)
    return loss


def exact_result(problem: Problem, rule: str, chunk: int = 256) -> tuple[Tensor, ...]:
    """The mean loss and the gradients by input, weight and bias, in float64, `chunk` rows at a time."""
    exact = problem.double()
    total = torch.zeros((), dtype=torch.float64, device=problem.input.device)
    for start in range(0, len(problem.target), chunk):
        rows = slice(start, start + chunk)
        share = exact_loss(exact, rows, rule)
        share.backward()
        total += share.detach()
    return total, *(leaf.grad for leaf in exact.leaves if leaf.grad is not None)


def exact_loss(exact: Problem, rows: slice, rule: str) -> Tensor:
    """What these rows add to the mean loss."""
    log_probs = F.linear(exact.input[rows], exact.weight, exact.bias).log_softmax(-1)
    of_target = log_probs.gather(1, exact.target[rows, None]).squeeze(1)
    if rule == "log":
        losses = -of_target
    else:
        squares = log_probs.exp().square().sum(-1)
        losses = squares - 2 * of_target.exp() if rule == "brier" else -of_target.exp() / squares.sqrt()
    return losses.sum() / len(exact.target)
