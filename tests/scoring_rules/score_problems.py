"""What the tests of linear_score share."""

from __future__ import annotations

import pytest
import torch
from rule_problems import DEVICE, Problem
from torch import Tensor

from mlmfast.functional import LinearScores, ScoringRule, linear_score
from mlmfast.kernels.impl_choice import IMPLS, why_not
from mlmfast.kernels.score_chunked import ScoreRequest

NO_TOPK = ("triton",)
NAMES = ("log", "brier", "spherical")


def everything(impl: str, topk: int = 3) -> dict[str, object]:
    """All that linear_score can give beside scores, of what this impl has."""
    of_all = {"return_lse": True, "return_entropy": True, "return_rank": True}
    return of_all if impl in NO_TOPK else of_all | {"topk": topk}


def available(*rules: ScoringRule, dtype: torch.dtype = torch.float32) -> list[str]:
    """The impls that can compute these rules here."""
    tensors = [torch.zeros(shape, device=DEVICE, dtype=dtype) for shape in ((2, 7), (11, 7))]
    request = ScoreRequest(rules)
    return [impl for impl in IMPLS[1:] if why_not("linear_score", impl, *tensors, request) is None]


LOG = ScoringRule("log")
every_impl = pytest.mark.parametrize("impl", available(LOG))
every_impl_of_all_rules = pytest.mark.parametrize("impl", available(*map(ScoringRule, NAMES)))


def score(problem: Problem, target: Tensor | tuple[Tensor, Tensor], **options: object) -> LinearScores:
    return linear_score(problem.input, problem.weight, target, linear_bias=problem.bias, **options)


def log_probs_of(problem: Problem) -> Tensor:
    """float64 [N, V]"""
    logits = problem.input.double() @ problem.weight.double().T
    return torch.log_softmax(logits if problem.bias is None else logits + problem.bias.double(), dim=-1)
