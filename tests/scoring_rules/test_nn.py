"""The modules say what the functions say, and refuse their settings at once."""

from __future__ import annotations

import pytest
import torch
from rule_problems import ALL_RULES, make_problem, rule_id

from mlmfast import SettingsError
from mlmfast.functional import ScoringRule, linear_scoring_rule_loss, scoring_rule_loss
from mlmfast.nn import LinearScoringRuleLoss, ScoringRuleLoss

every_rule = pytest.mark.parametrize("rule", ALL_RULES, ids=rule_id)


def settings_of(rule: ScoringRule) -> dict[str, object]:
    return {
        "rule": rule.name,
        "alpha": rule.alpha,
        "smoothing": rule.smoothing,
        "masked_log": rule.masked_log,
        "reduction": "sum",
        "ignore_index": 2,
    }


@every_rule
def test_of_logits(rule: ScoringRule) -> None:
    problem = make_problem(11, 5, num_ignored=0)
    logits = problem.input @ problem.weight.T
    found = ScoringRuleLoss(**settings_of(rule))(logits, problem.target)
    assert torch.equal(found, scoring_rule_loss(logits, problem.target, **settings_of(rule)))


@every_rule
@pytest.mark.parametrize("impl", ["auto", "torch", "reference"])
def test_linear(rule: ScoringRule, impl: str) -> None:
    problem = make_problem(11, 5, num_ignored=0)
    rows = torch.tensor([3, 1], device=problem.target.device)
    arguments = problem.input, problem.weight, problem.target[rows]
    loss = LinearScoringRuleLoss(**settings_of(rule), impl=impl)
    found = loss(*arguments, linear_bias=problem.bias, rows=rows)
    wanted = linear_scoring_rule_loss(
        *arguments, linear_bias=problem.bias, rows=rows, **settings_of(rule), impl=impl
    )
    assert torch.equal(found, wanted)
    assert not list(loss.parameters())


@pytest.mark.parametrize("module", [ScoringRuleLoss, LinearScoringRuleLoss])
@pytest.mark.parametrize("options", [{"rule": "crps"}, {"smoothing": 1.5}, {"reduction": "max"}])
def test_settings_are_checked_at_once(module: type[torch.nn.Module], options: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        module(**options)
    if module is LinearScoringRuleLoss:
        with pytest.raises(SettingsError, match="impl: expected one of"):
            module(impl="fast")


def test_they_show_their_settings() -> None:
    assert repr(ScoringRuleLoss("brier", smoothing=0.1)) == (
        "ScoringRuleLoss('brier', alpha=2.0, smoothing=0.1, masked_log=True, reduction='mean', "
        "ignore_index=-100)"
    )
    assert repr(LinearScoringRuleLoss("log")).endswith("ignore_index=-100, impl='auto')")
