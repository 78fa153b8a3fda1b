"""What is particular to the Triton kernels of linear_score; test_linear_score checks them beside the others.

Run by test_triton under the interpreter, and as it stands where there is a GPU.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from rule_problems import DEVICE, Problem, make_problem
from score_problems import NAMES, everything, log_probs_of, score
from torch import Tensor

from mlmfast.functional import LinearScores, ScoringRule
from mlmfast.kernels import score_triton
from mlmfast.kernels.score_chunked import ScoreRequest
from mlmfast.kernels.triton.launch import TILES, Sweep

every_dtype = pytest.mark.parametrize("dtype", TILES, ids=str)
poisoned = pytest.mark.usefixtures("poisoned_memory")


def ask(problem: Problem, target: Tensor | tuple[Tensor, Tensor], impl: str = "triton") -> LinearScores:
    return score(problem, target, rules=NAMES, **everything("triton"), impl=impl)


def check_against_reference(problem: Problem, target: Tensor | tuple[Tensor, Tensor]) -> None:
    """In float64; ranks between those of logits a rounding lower and higher."""
    found = ask(problem, target)
    wide = replace(problem, input=problem.input.double(), weight=problem.weight.double())
    wide.bias = None if problem.bias is None else problem.bias.double()
    wanted = ask(wide, target, "reference")
    for name in ("scores", "lse", "entropy"):
        value, exact = getattr(found, name), getattr(wanted, name)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-5, msg=name)
    assert found.rank is not None
    assert wanted.rank is not None
    assert (found.rank - wanted.rank).abs().max() <= 1
    assert (found.rank != wanted.rank).double().mean() < 0.02


@poisoned
@every_dtype
def test_several_splits_and_row_blocks(dtype: torch.dtype) -> None:
    problem = make_problem(2000, 64, 130, dtype=dtype, num_ignored=0)
    sweep = Sweep.of(problem.input, problem.weight)
    assert sweep.num_row_blocks > 1
    assert sweep.num_splits > 1
    check_against_reference(problem, problem.target)


@poisoned
@pytest.mark.parametrize(("vocab_size", "num_features"), [(1, 1), (127, 31), (128, 33), (129, 65), (1000, 7)])
@pytest.mark.parametrize("num_rows", [1, 3, 65])
def test_odd_shapes(vocab_size: int, num_features: int, num_rows: int) -> None:
    problem = make_problem(vocab_size, num_features, num_rows, num_ignored=0)
    check_against_reference(problem, problem.target)


@poisoned
@pytest.mark.parametrize("num_rows", [17, 63, 64, 511, 512])
def test_rows_at_the_edges_of_blocks(num_rows: int) -> None:
    problem = make_problem(129, 33, num_rows, num_ignored=0)
    check_against_reference(problem, problem.target)


@poisoned
def test_rows_of_no_and_of_many_targets() -> None:
    """In any order, some of them twice, and rows with all classes for targets."""
    problem = make_problem(700, 64, 5, num_ignored=0)
    generator = torch.Generator().manual_seed(1)
    rows = [
        torch.randperm(700, generator=generator),
        torch.tensor([], dtype=torch.int64),
        torch.tensor([699, 0, 699, 128, 127, 0]),
        torch.randint(700, (40,), generator=generator),
        torch.tensor([], dtype=torch.int64),
    ]
    offsets = torch.tensor([0, *map(len, rows)]).cumsum(0).to(DEVICE)
    check_against_reference(problem, (torch.cat(rows).to(DEVICE), offsets))


@poisoned
def test_a_row_alone_is_worth_the_same() -> None:
    problem = make_problem(700, 64, 9, num_ignored=0)
    together = ask(problem, problem.target)
    for row in range(9):
        one = replace(problem, input=problem.input[row : row + 1])
        alone = ask(one, problem.target[row : row + 1])
        torch.testing.assert_close(alone.scores[:, 0], together.scores[:, row], rtol=0, atol=1e-6)


@pytest.mark.parametrize("vocab_size", [2, 129, 300])
def test_equal_logits(vocab_size: int) -> None:
    """Every class reaches the maximum; the entropy is that of a fair die, and none outranks another."""
    problem = Problem(
        input=torch.ones(3, 16, device=DEVICE),
        weight=torch.full((vocab_size, 16), 0.125, device=DEVICE),
        bias=None,
        target=torch.tensor([0, 1, vocab_size - 1], device=DEVICE),
        grad_loss=torch.ones(3, device=DEVICE),
    )
    found = ask(problem, problem.target)
    expected = torch.full((3,), math.log(vocab_size), device=DEVICE)
    torch.testing.assert_close(found.scores[0], -expected)
    torch.testing.assert_close(found.entropy, expected)
    assert not found.rank.any()


@pytest.mark.parametrize("scale", [1e2, 1e4, 1e30])
def test_extreme_logits(scale: float) -> None:
    """All of the probability is one class's: no score is NaN or above the best there is."""
    problem = make_problem(300, 16, 5, num_ignored=0)
    problem.input = problem.input * scale
    target = log_probs_of(problem).argmax(dim=-1)
    found = ask(problem, torch.stack([target, problem.target], dim=1))
    assert not found.scores.isnan().any()
    assert (found.scores[0] <= 0).all()
    assert (found.scores[1:] <= 1).all()
    assert (found.scores[0, :, 0] > -1e-3).all()
    assert found.entropy.isfinite().all()
    assert (found.entropy >= 0).all()
    assert not found.rank[:, 0].any()


@pytest.mark.parametrize("everywhere", [False, True])
def test_rows_without_a_distribution(everywhere: bool) -> None:
    """A logit of +inf, or none above -inf."""
    problem = make_problem(251, 64, 3, num_ignored=0)
    assert problem.bias is not None
    problem.bias[0 if everywhere else 17 :] = -torch.inf
    if not everywhere:
        problem.bias[17] = torch.inf
    found = ask(problem, problem.target)
    for column in (found.scores, found.lse, found.entropy):
        assert column.isnan().all()
    assert (found.rank == -1).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_float32_bias_of_a_half_layer(dtype: torch.dtype) -> None:
    problem = make_problem(251, 64, dtype=dtype, num_ignored=0)
    assert problem.bias is not None
    problem.bias = problem.bias.float() + 1e-4
    check_against_reference(problem, problem.target)


def test_what_it_cannot_run() -> None:
    tensors = torch.zeros(2, 7, device=DEVICE), torch.zeros(11, 7, device=DEVICE)
    log = (ScoringRule("log"),)
    assert score_triton.can_run(*tensors, ScoreRequest(log, True, True, True)) is None
    assert score_triton.can_run(*tensors, ScoreRequest(log, topk=1)) == "it has no top-k"
    assert "float64" in str(score_triton.can_run(*(x.double() for x in tensors), ScoreRequest(log)))
