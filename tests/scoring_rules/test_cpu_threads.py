"""The compiled core shares out classes (losses) or rows (scores) among as many threads as torch has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from rule_problems import Problem, by_kernel, check_result, make_problem
from tolerances import BF16X3

from mlmfast.functional import linear_score
from mlmfast.kernels import rule_cpu
from mlmfast.kernels.rules import ScoringRule


@pytest.fixture(params=[1, 2, 3, 64])
def num_threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return make_problem(2100, 40, 70, num_ignored=3)


@pytest.mark.parametrize("name", ["log", "brier", "spherical"])
def test_losses(num_threads: int, name: str, problem: Problem) -> None:
    rule = ScoringRule(name, smoothing=0.1)
    check_result(by_kernel(rule_cpu, problem, rule), problem, rule, BF16X3)


def test_repeated_calls_give_the_same_bits(num_threads: int, problem: Problem) -> None:
    first, second = (by_kernel(rule_cpu, problem, ScoringRule("brier")) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_scores_do_not_depend_on_threads(num_threads: int) -> None:
    problem = make_problem(2100, 40, 300, num_ignored=0)
    tensors = problem.input, problem.weight, problem.target
    with_threads = linear_score(*tensors, rules=("log", "brier"), return_rank=True, topk=3, impl="cpu")
    torch.set_num_threads(1)
    alone = linear_score(*tensors, rules=("log", "brier"), return_rank=True, topk=3, impl="cpu")
    for name in ("scores", "rank", "top_ids", "top_log_probs"):
        assert torch.equal(getattr(with_threads, name), getattr(alone, name)), name
