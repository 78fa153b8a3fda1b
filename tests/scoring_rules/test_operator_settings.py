"""What linear_scoring_rule_loss refuses, and how it chooses and names what runs it."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
import torch
from rule_problems import DEVICE, available_impls, make_problem
from torch import Tensor

from mlmfast import SettingsError
from mlmfast.functional import linear_scoring_rule_loss
from mlmfast.kernels import impl_choice, rule_chunked

every_impl = pytest.mark.parametrize("impl", ["reference", *available_impls()])

BAD_INPUT = [
    ({"weight": torch.zeros(11, 4)}, r"input: .* \[..., 4\] for .* \[11, 4\], got float32\[5, 5\]"),
    ({"weight": torch.zeros(11)}, r"linear_weight: expected \[V, D\], .* got float32\[11\]"),
    ({"weight": torch.zeros(0, 5)}, r"linear_weight: .* at least \[1, 1\], got float32\[0, 5\]"),
    ({"weight": torch.zeros(11, 5).double()}, "one .* type of both, got torch.float32 and torch.float64"),
    ({"bias": torch.zeros(10)}, r"linear_bias: expected \[11\], got float32\[10\]"),
    ({"bias": torch.zeros(11).double()}, "linear_bias: expected .*torch.float32, got torch.float64"),
    ({"weight": torch.zeros(11, 5, device="meta")}, "input, linear_weight and linear_bias are on "),
    ({"target": torch.zeros(4).long()}, r"target: expected \[5\], as of input or rows, got int64\[4\]"),
    ({"target": torch.zeros(5)}, r"target: expected int64 ids, got float32\[5\]"),
    ({"rows": torch.zeros(1, 5).long()}, r"rows: expected int64\[M\], got int64\[1, 5\]"),
    ({"rows": torch.zeros(3).long()}, r"target: expected \[3\], as of input or rows, got int64\[5\]"),
    ({"rows": torch.ones(5).bool()}, r"rows: expected int64 ids, got bool\[5\]"),
    ({"rule": "crps"}, "rule: expected one of log, brier"),
    ({"reduction": "max"}, "reduction: expected one of mean, sum, none, got 'max'"),
    ({"impl": "fast"}, "impl: expected one of auto, reference, torch, cpu, triton, cuda, got 'fast'"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), BAD_INPUT)
def test_bad_input(options: dict[str, object], message: str) -> None:
    problem = make_problem(11, 5)
    arguments = {"weight": problem.weight, "target": problem.target, "bias": problem.bias, **options}
    arguments = {name: x.to(DEVICE) if isinstance(x, Tensor) and x.device.type != "meta" else x
                 for name, x in arguments.items()}  # fmt: skip
    with pytest.raises(SettingsError, match=message):
        linear_scoring_rule_loss(
            problem.input,
            arguments.pop("weight"),
            arguments.pop("target"),
            linear_bias=arguments.pop("bias"),
            **arguments,
        )


@pytest.mark.skipif(DEVICE != "cpu", reason="elsewhere the device asserts, which ends the process")
@every_impl
@pytest.mark.parametrize("compiled", [False, True])
def test_ids_out_of_range(impl: str, compiled: bool) -> None:
    problem = make_problem(11, 5, num_ignored=0)
    loss = (
        torch.compile(linear_scoring_rule_loss, backend="aot_eager") if compiled else linear_scoring_rule_loss
    )
    problem.target[3] = 11
    with pytest.raises(
        SettingsError, match="target: expected ids from 0 to 10 or ignore_index -100, got 11 at place 3"
    ):
        loss(problem.input, problem.weight, problem.target, impl=impl)
    rows = torch.tensor([0, -1])
    with pytest.raises(SettingsError, match="rows: expected ids from 0 to 4, got -1 at place 1"):
        loss(problem.input, problem.weight, problem.target[:2], rows=rows, impl=impl)


def test_an_impl_that_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(11, 5)
    monkeypatch.setattr(impl_choice, "load_impl", lambda *_: FakeKernel)
    with pytest.raises(
        SettingsError, match="impl: 'triton' cannot run here: it is a fake; impl='reference' runs"
    ):
        linear_scoring_rule_loss(problem.input, problem.weight, problem.target, impl="triton")


class FakeKernel:
    @staticmethod
    def can_run(*_: object) -> str:
        return "it is a fake"


class ContiguousOnly:
    """The torch kernel, but it takes only tensors without gaps, as the contract of impls has it."""

    can_run = staticmethod(rule_chunked.can_run)

    @staticmethod
    def forward(*arguments: object) -> tuple[Tensor, Tensor]:
        assert all(x.is_contiguous() for x in arguments if isinstance(x, Tensor))
        return rule_chunked.forward(*arguments)

    @staticmethod
    def backward(*arguments: object) -> tuple[Tensor | None, ...]:
        assert all(x.is_contiguous() for x in arguments if isinstance(x, Tensor))
        return rule_chunked.backward(*arguments)


def test_impls_get_contiguous_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impl_choice, "load_impl", lambda *_: ContiguousOnly)
    gapped = [torch.randn(shape, device=DEVICE)[..., 0] for shape in ((6, 5, 2), (11, 5, 2), (11, 2))]
    input, weight, bias = (x.requires_grad_() for x in gapped)
    target = torch.zeros(6, 2, dtype=torch.int64, device=DEVICE)[:, 0]
    losses = linear_scoring_rule_loss(input, weight, target, linear_bias=bias, reduction="none", impl="torch")
    losses.backward(torch.ones(1, device=DEVICE).expand(6))
    assert all(x.grad is not None for x in (input, weight, bias))


def test_auto_logs_its_choice_once(caplog: pytest.LogCaptureFixture) -> None:
    problem = make_problem(11, 5)
    impl_choice.log_choice.cache_clear()
    with caplog.at_level(logging.DEBUG, logger="mlmfast"):
        for _ in range(3):
            linear_scoring_rule_loss(problem.input, problem.weight, problem.target)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1
    assert messages[0].startswith("linear_scoring_rule_loss: impl 'auto' uses '")


@pytest.mark.parametrize("module", ["mlmfast.functional", "mlmfast.nn"])
def test_without_torch_the_extra_is_named(module: str) -> None:
    program = (
        "import sys; sys.modules['torch'] = None; import mlmfast\n"
        f"try:\n    import {module}\nexcept mlmfast.MissingExtraError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{module} needs the package 'torch'")
    assert "pip install 'mlmfast[torch]'" in done.stdout
