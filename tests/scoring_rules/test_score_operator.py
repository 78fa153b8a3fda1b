"""linear_score as an operator: autograd, autocast, compilation, errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from rule_problems import DEVICE, IGNORED, make_problem
from score_problems import (
    NAMES,
    NO_TOPK,
    every_impl,
    every_impl_of_all_rules,
    everything,
    log_probs_of,
    score,
)
from torch import Tensor

from mlmfast import SettingsError
from mlmfast.functional import LinearScores, ScoringRule, linear_score
from mlmfast.kernels.score_operators import linear_score as linear_score_operator


@every_impl
def test_it_records_no_graph_and_writes_to_no_input(impl: str) -> None:
    problem = make_problem(251, 64, num_ignored=0)
    before = [x.clone() for x in problem.tensors()]
    problem.weight.requires_grad_()
    found = score(problem, problem.target, **everything(impl), impl=impl)
    assert not any(value.requires_grad for value in found if value is not None)
    assert all(torch.equal(*pair) for pair in zip(problem.tensors(), before, strict=True))


@every_impl
def test_autocast(impl: str) -> None:
    problem = make_problem(251, 64, num_ignored=0)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        found = score(problem, problem.target, impl=impl)
    problem.input, problem.weight = problem.input.bfloat16(), problem.weight.bfloat16()
    wanted = log_probs_of(problem).gather(1, problem.target[:, None]).T
    torch.testing.assert_close(found.scores.double(), wanted, rtol=0, atol=1e-5)


def asking(impl: str) -> Callable[..., LinearScores]:
    def ask(input: Tensor, weight: Tensor, ids: Tensor, offsets: Tensor) -> LinearScores:
        return linear_score(input, weight, (ids, offsets), rules=NAMES, **everything(impl), impl=impl)

    return ask


@every_impl_of_all_rules
def test_compilation_without_a_break(impl: str) -> None:
    problem = make_problem(251, 64, 3, num_ignored=0)
    offsets = torch.tensor([0, 0, 1, 3], device=DEVICE)
    arguments = problem.input, problem.weight, problem.target, offsets
    found = torch.compile(asking(impl), fullgraph=True, backend="aot_eager")(*arguments)
    for value, wanted in zip(found, asking(impl)(*arguments), strict=True):
        assert value is wanted is None or torch.equal(value, wanted)


@every_impl_of_all_rules
def test_opcheck(impl: str) -> None:
    problem = make_problem(11, 5, 3, num_ignored=0)
    offsets = torch.tensor([0, 0, 1, 3], device=DEVICE)
    settings = list(NAMES), [2.0] * 3, [0.0] * 3, [True] * 3
    for flags in ((True, True, True, 0 if impl in NO_TOPK else 2), (False, False, False, 0)):
        torch.library.opcheck(
            linear_score_operator,
            (problem.input, problem.weight, problem.bias, problem.target, offsets, *settings, *flags, impl),
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rules": ()}, "rules: expected at least one"),
        ({"rules": ["crps"]}, "rule: expected one of log"),
        ({"topk": 12}, r"topk: expected 0 to 11 \(the vocabulary\), got 12"),
        ({"topk": -1}, "topk: expected 0 to 11"),
        ({"target": torch.zeros(4).long()}, r"target: expected \[5\] or \[5, 'K'\], got int64\[4\]"),
        ({"target": torch.zeros(5, 1, 1).long()}, r"target: expected \[5\] or \[5, 'K'\]"),
        ({"target": torch.full((5, 2), IGNORED)}, "target: expected ids from 0 to 10, got -100 at place 0"),
        ({"target": torch.zeros(5)}, r"target: expected int64 ids, got float32\[5\]"),
        ({"offsets": [0, 1, 2, 3, 5]}, r"target offsets: expected int64\[6\], got int64\[5\]"),
        ({"offsets": [0, 1, 3, 2, 4, 5]}, "offsets that never fall, got 3 then 2 at row 2"),
        ({"offsets": [0, 1, 2, 3, 4, 4]}, "to run from 0 to the 5 targets, got 0 to 4"),
        ({"offsets": [1, 1, 2, 3, 4, 5]}, "to run from 0 to the 5 targets, got 1 to 5"),
        ({"impl": "cuda"}, "impl: 'cuda' cannot run here: "),
        ({"impl": "triton", "topk": 1}, "impl: 'triton' cannot run here: it has no top-k"),
        (
            {"impl": "triton", "rules": [ScoringRule("brier", smoothing=0.1)]},
            "it scores alpha 2 without smoothing",
        ),
        ({"impl": "triton", "rules": [ScoringRule("power", alpha=3.0)]}, "it scores alpha 2"),
    ],
)
def test_bad_input(options: dict[str, object], message: str) -> None:
    problem = make_problem(11, 5, num_ignored=0)
    target = options.pop("target", problem.target)
    if "offsets" in options:
        target = problem.target, torch.tensor(options.pop("offsets"))
    with pytest.raises(SettingsError, match=message):
        score(problem, target, **options)
