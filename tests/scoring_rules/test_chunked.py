"""The torch kernel: every alpha, its closed form, its tiles and its memory."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rule_problems import (
    ALL_RULES,
    DEVICE,
    IGNORED,
    Problem,
    all_rules,
    by_kernel,
    check_result,
    make_problem,
    rule_id,
)
from tolerances import FLOAT32, FLOAT64, OF_DTYPE

from mlmfast import SettingsError
from mlmfast.functional import linear_scoring_rule_loss
from mlmfast.kernels import logit_tiles, rule_chunked
from mlmfast.kernels.rule_reference import rule_losses
from mlmfast.kernels.rules import ScoringRule

every_rule = pytest.mark.parametrize("rule", ALL_RULES, ids=rule_id)
MEBIBYTE = 1 << 20


@every_rule
@pytest.mark.parametrize("dtype", OF_DTYPE, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_every_rule(rule: ScoringRule, dtype: torch.dtype) -> None:
    for vocab_size in (1, 2, 251):
        problem = make_problem(vocab_size, 64, 37, dtype=dtype)
        check_result(by_kernel(rule_chunked, problem, rule), problem, rule, OF_DTYPE[dtype])


@every_rule
@pytest.mark.parametrize("scale", [0.1, 3.0, 20.0])
def test_the_closed_form_is_what_autograd_finds(rule: ScoringRule, scale: float) -> None:
    """The gradient of every single logit, in float64."""
    problem = make_problem(251, 64, 9, dtype=torch.float64, scale=scale)
    assert problem.bias is not None
    logits = (problem.input @ problem.weight.T + problem.bias).requires_grad_()
    losses = rule_losses(logits, problem.target, rule, IGNORED)
    losses.sum().backward()
    tensors = problem.input, problem.weight, problem.bias, problem.target
    _, coefficients = rule_chunked.forward(*tensors, rule, IGNORED)
    place = problem.target.clamp(min=0)[:, None]
    is_here = problem.target != IGNORED
    found = rule_chunked.logit_gradients(
        logits.detach().clone(), place, is_here, coefficients, rule, vocab_size=251
    )
    torch.testing.assert_close(found, logits.grad, rtol=0, atol=1e-13 * max(scale, 1))


@pytest.mark.parametrize("rule", list(all_rules(alphas=(7.5, 20.0)))[3:5], ids=rule_id)
def test_large_alphas_need_float64(rule: ScoringRule) -> None:
    problem = make_problem(251, 64, dtype=torch.float64)
    check_result(by_kernel(rule_chunked, problem, rule), problem, rule, FLOAT64)
    problem = make_problem(251, 64)
    settings = {"rule": rule.name, "alpha": rule.alpha}
    with pytest.raises(
        SettingsError, match=r"'torch' cannot run here: it takes alpha up to 6 in torch.float32"
    ):
        linear_scoring_rule_loss(problem.input, problem.weight, problem.target, impl="torch", **settings)
    linear_scoring_rule_loss(problem.input, problem.weight, problem.target, impl="reference", **settings)


@pytest.mark.parametrize("rule", list(all_rules(alphas=(rule_chunked.MAX_ALPHA,))), ids=rule_id)
def test_the_largest_alpha_over_an_even_vocabulary(rule: ScoringRule) -> None:
    """Where sum p^alpha is smallest."""
    problem = make_problem(250002, 7, 2, scale=1e-3, num_ignored=0)
    problem.bias = None
    check_result(by_kernel(rule_chunked, problem, rule), problem, rule, FLOAT32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@every_rule
def test_tiles_change_nothing(rule: ScoringRule, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one row and class, all rows, all classes, the last of each smaller."""
    problem = make_problem(23, 7, 5, dtype=dtype)
    for shape in ((1, 1), (5, 9), (2, 22), (3, 23), (4, 3)):
        monkeypatch.setattr(rule_chunked, "tile_shape", lambda *_, shape=shape: shape)
        check_result(by_kernel(rule_chunked, problem, rule), problem, rule, OF_DTYPE[dtype])


@every_rule
def test_tiles_of_impossible_classes(rule: ScoringRule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole tiles with a bias of -inf, the first one among them, are as if they were not there."""
    if rule.smoothing:
        rule = replace(rule, smoothing=0.0)
    problem = make_problem(40, 7, 5, num_ignored=0)
    assert problem.bias is not None
    problem.bias[:20], problem.bias[30:] = -torch.inf, -torch.inf
    problem.target[:] = torch.tensor([20, 21, 22, 25, 29])
    monkeypatch.setattr(rule_chunked, "tile_shape", lambda *_: (2, 10))
    found = by_kernel(rule_chunked, problem, rule)
    fewer = replace(
        problem, weight=problem.weight[20:30], bias=problem.bias[20:30], target=problem.target - 20
    )
    wanted = by_kernel(rule_chunked, fewer, rule)
    torch.testing.assert_close(found.losses, wanted.losses)
    torch.testing.assert_close(found.grad_input, wanted.grad_input)
    assert found.grad_bias is not None
    torch.testing.assert_close(found.grad_bias[20:30], wanted.grad_bias)
    assert torch.count_nonzero(found.grad_weight[:20]) == torch.count_nonzero(found.grad_weight[30:]) == 0


@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize(
    ("num_rows", "vocab_size", "num_features"),
    [(0, 5, 7), (1, 1, 1), (1, 250002, 768), (7, 10**9, 4096), (10**6, 1, 64), (2048, 30522, 768),
     (65536, 250002, 1024), (3, 2, 10**8)],
)  # fmt: skip
def test_tiles_are_within_their_bytes(
    num_rows: int, vocab_size: int, num_features: int, itemsize: int
) -> None:
    dtype = torch.float32 if itemsize == 4 else torch.float64
    weight = torch.empty(vocab_size, num_features, device="meta")
    rows, classes = logit_tiles.tile_shape(num_rows, weight, dtype)
    assert 1 <= rows <= max(num_rows, 1)
    assert 1 <= classes <= vocab_size
    used = itemsize * (rows * num_features + classes * (logit_tiles.LIVE_TILES * rows + 2 * num_features))
    whole = num_rows * vocab_size * itemsize
    assert (rows, classes) == (1, 1) or used <= min(max(whole // 20, 4 * MEBIBYTE), 64 * MEBIBYTE)


def test_tiles_suit_matrix_products() -> None:
    """Of a BERT's head, for 2,048 masked positions."""
    weight = torch.empty(30522, 768, device="meta")
    rows, classes = logit_tiles.tile_shape(2048, weight, torch.float32)
    assert rows == 512
    assert classes > 500


def peak_of(run: Callable[[], object], folder: Path) -> int:
    """The most bytes torch held at once above what it held before, by its allocator's own record."""
    with torch.profiler.profile(profile_memory=True) as profile:
        run()
    profile.export_chrome_trace(str(folder / "trace.json"))
    events = json.loads((folder / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    changes = [event["args"]["Bytes"] for event in events if event["name"] == "[memory]"]
    return max(itertools.accumulate(changes, initial=0))


@pytest.mark.skipif(DEVICE != "cpu", reason="counts the memory of the CPU's allocator")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "rule",
    [
        ScoringRule("log", smoothing=0.1),
        ScoringRule("brier", smoothing=0.1),
        ScoringRule("pseudospherical", 1.5, smoothing=0.1),
    ],
    ids=rule_id,
)
def test_memory_stays_below_a_twentieth_of_the_logits(
    rule: ScoringRule, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the results and, in the backward, a float32 accumulator of the input's gradient."""
    monkeypatch.setattr(logit_tiles, "MIN_BYTES", 0)
    problem = make_problem(10000, 16, 480, dtype=dtype)
    logits_bytes = 480 * 10000 * 4
    tensors = problem.input, problem.weight, problem.bias, problem.target
    assert peak_of(lambda: problem.input.float() @ problem.weight.float().T, tmp_path) >= logits_bytes
    small = 64 * 480 * 4  # some numbers a row
    coefficients = rule_chunked.forward(*tensors, rule, IGNORED)[1]
    peak = peak_of(lambda: rule_chunked.forward(*tensors, rule, IGNORED), tmp_path)
    assert logits_bytes / 60 < peak < logits_bytes / 20 + small
    peak = peak_of(
        lambda: rule_chunked.backward(problem.grad_loss, *tensors, coefficients, rule, problem.needs),
        tmp_path,
    )
    outputs = (10000 * 16 + 480 * 16 + 10000) * dtype.itemsize
    accumulator = 0 if dtype == torch.float32 else 480 * 16 * 4
    assert peak < logits_bytes / 20 + small + outputs + accumulator


def test_float16_is_computed_in_float32() -> None:
    problem = make_problem(251, 64, dtype=torch.float16)
    raised = Problem(*(x if x is problem.target else x.float() for x in problem.tensors()))
    rule = ScoringRule("brier", smoothing=0.1)
    found, wanted = by_kernel(rule_chunked, problem, rule), by_kernel(rule_chunked, raised, rule)
    torch.testing.assert_close(found.losses, wanted.losses)
    assert found.grad_weight.dtype == torch.float16
    torch.testing.assert_close(found.grad_weight.float(), wanted.grad_weight, rtol=1e-3, atol=1e-5)
