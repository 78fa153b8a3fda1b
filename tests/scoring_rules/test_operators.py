"""linear_scoring_rule_loss under autograd: gradients, reductions, rows, odd inputs, tied weights."""

from __future__ import annotations

import pytest
import torch
from rule_problems import (
    DEVICE,
    IGNORED,
    KERNEL_RULES,
    available_impls,
    by_reference,
    error_of,
    gradients_of,
    make_problem,
    rule_id,
    with_gradients,
)
from tolerances import SMALLEST, tolerance_of
from torch import Tensor

from mlmfast.functional import ScoringRule, linear_scoring_rule_loss

every_impl = pytest.mark.parametrize("impl", ["reference", *available_impls()])
BRIER = {"rule": "brier", "smoothing": 0.1}


@every_impl
@pytest.mark.parametrize("rule", KERNEL_RULES, ids=rule_id)
def test_rows_honour_their_upstream_gradients(impl: str, rule: ScoringRule) -> None:
    problem = make_problem(251, 64)
    input, weight, bias = with_gradients(problem)
    losses = linear_scoring_rule_loss(
        input,
        weight,
        problem.target,
        linear_bias=bias,
        rule=rule.name,
        smoothing=rule.smoothing,
        masked_log=rule.masked_log,
        reduction="none",
        impl=impl,
    )
    found = losses, *gradients_of((losses * problem.grad_loss).sum(), input, weight, bias)
    for value, wanted in zip(found, by_reference(problem, rule), strict=True):
        assert wanted is not None
        allowed = tolerance_of(impl, torch.float32).gradient
        assert error_of(value.detach(), wanted, SMALLEST) < allowed


@every_impl
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_reductions_leave_out_ignored_rows(impl: str, reduction: str) -> None:
    problem = make_problem(251, 64, 6, num_ignored=2)
    arguments = problem.input, problem.weight, problem.target
    each = linear_scoring_rule_loss(*arguments, **BRIER, reduction="none", impl=impl)
    assert torch.count_nonzero(each) == 4
    wanted = each.sum() / 4 if reduction == "mean" else each.sum()
    found = linear_scoring_rule_loss(*arguments, **BRIER, reduction=reduction, impl=impl)
    torch.testing.assert_close(found, wanted)


@every_impl
def test_an_empty_selection(impl: str) -> None:
    """Sums to 0, with gradients of 0; its mean is NaN, as torch's own."""
    problem = make_problem(251, 64)
    input, weight, bias = with_gradients(problem)
    none = torch.zeros(0, dtype=torch.int64, device=DEVICE)
    options = {"linear_bias": bias, "rows": none, "impl": impl}
    loss = linear_scoring_rule_loss(input, weight, none, reduction="sum", **options)
    assert loss == 0
    assert all(torch.count_nonzero(x) == 0 for x in gradients_of(loss, input, weight, bias))
    assert linear_scoring_rule_loss(input, weight, none, **options).isnan()
    assert linear_scoring_rule_loss(input, weight, none, reduction="none", **options).shape == (0,)
    ignored = torch.full((5,), IGNORED, device=DEVICE)
    assert linear_scoring_rule_loss(input, weight, ignored, reduction="sum", impl=impl) == 0
    assert linear_scoring_rule_loss(input, weight, ignored, impl=impl).isnan()


@every_impl
def test_rows_are_gathered(impl: str) -> None:
    """Also one twice, and of an input of three dimensions."""
    problem = make_problem(251, 64, 6, num_ignored=0)
    rows = torch.tensor([4, 0, 4], device=DEVICE)
    target = torch.tensor([9, IGNORED, 250], device=DEVICE)
    input, weight, bias = with_gradients(problem)
    wanted = linear_scoring_rule_loss(input[rows], weight, target, linear_bias=bias, **BRIER, impl=impl)
    found = linear_scoring_rule_loss(
        input.reshape(2, 3, 64), weight, target, linear_bias=bias, rows=rows, **BRIER, impl=impl
    )
    assert torch.equal(found, wanted)
    for pair in zip(gradients_of(found, input, weight), gradients_of(wanted, input, weight), strict=True):
        torch.testing.assert_close(*pair)


@every_impl
def test_leading_dimensions(impl: str) -> None:
    problem = make_problem(251, 64, 6)
    flat = linear_scoring_rule_loss(
        problem.input, problem.weight, problem.target, reduction="none", impl=impl
    )
    found = linear_scoring_rule_loss(
        problem.input.reshape(2, 3, 64),
        problem.weight,
        problem.target.reshape(2, 3).int(),
        reduction="none",
        impl=impl,
    )
    assert torch.equal(found, flat.reshape(2, 3))


@every_impl
def test_gaps_in_the_inputs(impl: str) -> None:
    problem = make_problem(251, 64)
    input, weight, bias = with_gradients(problem)
    plain = linear_scoring_rule_loss(input, weight, problem.target, linear_bias=bias, **BRIER, impl=impl)
    gapped = (
        input.T.contiguous().T,
        torch.stack([weight, weight], dim=-1)[..., 0],
        torch.stack([problem.target, problem.target])[:, :].T.contiguous().T[0],
        torch.stack([bias, bias], dim=-1)[:, 1],
    )
    assert not any(x.is_contiguous() for x in (gapped[0], gapped[1], gapped[3]))
    found = linear_scoring_rule_loss(*gapped[:3], linear_bias=gapped[3], **BRIER, impl=impl)
    assert torch.equal(found, plain)
    leaves = input, weight, bias
    for pair in zip(gradients_of(found, *leaves), gradients_of(plain, *leaves), strict=True):
        torch.testing.assert_close(*pair)


@every_impl
def test_an_expanded_upstream_gradient(impl: str) -> None:
    problem = make_problem(251, 64)
    input, weight, _ = with_gradients(problem)
    losses = linear_scoring_rule_loss(input, weight, problem.target, reduction="none", impl=impl)
    expanded = torch.autograd.grad(losses, weight, torch.ones(1, device=DEVICE).expand(5), retain_graph=True)
    whole = torch.autograd.grad(losses, weight, torch.ones(5, device=DEVICE))
    assert torch.equal(expanded[0], whole[0])


@every_impl
def test_a_graph_is_used_twice(impl: str) -> None:
    problem = make_problem(251, 64)
    input, weight, bias = with_gradients(problem)
    loss = linear_scoring_rule_loss(input, weight, problem.target, linear_bias=bias, **BRIER, impl=impl)
    loss.backward(retain_graph=True)
    once = [x.grad.clone() for x in (input, weight, bias)]
    loss.backward()
    for leaf, gradient in zip((input, weight, bias), once, strict=True):
        assert torch.equal(leaf.grad, 2 * gradient)


@pytest.mark.parametrize("impl", available_impls())
def test_a_second_derivative_is_refused(impl: str) -> None:
    problem = make_problem(251, 64)
    input, weight, _ = with_gradients(problem)
    loss = linear_scoring_rule_loss(input, weight, problem.target, **BRIER, impl=impl)
    gradient = torch.autograd.grad(loss, input, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        gradient.square().sum().backward()


@every_impl
def test_autograd_changes_no_bit(impl: str) -> None:
    problem = make_problem(251, 64)
    input, weight, _ = with_gradients(problem)
    recorded = linear_scoring_rule_loss(input, weight, problem.target, **BRIER, reduction="none", impl=impl)
    with torch.no_grad():
        silent = linear_scoring_rule_loss(input, weight, problem.target, **BRIER, reduction="none", impl=impl)
    assert recorded.requires_grad
    assert not silent.requires_grad
    assert torch.equal(recorded, silent)


@every_impl
def test_inputs_are_not_written_to(impl: str) -> None:
    problem = make_problem(251, 64)
    before = [x.clone() for x in problem.tensors()]
    input, weight = problem.input.requires_grad_(), problem.weight.requires_grad_()
    rows = torch.arange(5, device=DEVICE)
    loss = linear_scoring_rule_loss(input, weight, problem.target, rows=rows, **BRIER, impl=impl)
    loss.backward()
    assert all(torch.equal(*pair) for pair in zip(problem.tensors(), before, strict=True))
    assert torch.equal(rows, torch.arange(5, device=DEVICE))


@every_impl
def test_tied_weights_share_one_gradient(impl: str) -> None:
    """An embedding that is the decoder too gets both parts, in the same buffer step after step."""
    problem = make_problem(251, 64, num_ignored=0)
    weight = problem.weight.clone().requires_grad_()
    ids = torch.tensor([3, 1, 4, 1, 5], device=DEVICE)

    def loss_of(embedding: Tensor, decoder: Tensor) -> Tensor:
        hidden = torch.nn.functional.embedding(ids, embedding).tanh()
        return linear_scoring_rule_loss(hidden, decoder, problem.target, **BRIER, impl=impl)

    loss_of(weight, weight).backward()
    assert weight.grad is not None
    buffer = weight.grad.data_ptr()
    untied = [weight.detach().clone().requires_grad_() for _ in range(2)]
    apart = gradients_of(loss_of(*untied), *untied)
    assert all(part.abs().max() > 1e-4 for part in apart)
    torch.testing.assert_close(weight.grad, apart[0] + apart[1])
    loss_of(weight, weight).backward()
    assert weight.grad.data_ptr() == buffer
    torch.testing.assert_close(weight.grad, 2 * (apart[0] + apart[1]))


@every_impl
def test_only_some_need_gradients(impl: str) -> None:
    problem = make_problem(251, 64)
    input, weight, bias = with_gradients(problem)
    arguments = {"target": problem.target, **BRIER, "impl": impl}
    everything = gradients_of(
        linear_scoring_rule_loss(input, weight, linear_bias=bias, **arguments), input, weight, bias
    )
    frozen_head = linear_scoring_rule_loss(input, weight.detach(), linear_bias=bias.detach(), **arguments)
    assert torch.equal(gradients_of(frozen_head, input)[0], everything[0])
    head_alone = linear_scoring_rule_loss(input.detach(), weight, linear_bias=bias, **arguments)
    for pair in zip(gradients_of(head_alone, weight, bias), everything[1:], strict=True):
        assert torch.equal(*pair)
