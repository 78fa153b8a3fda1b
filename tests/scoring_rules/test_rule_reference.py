"""scoring_rule_loss against formulas written out, torch's own losses, and the properties of proper scores."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_problems import ALL_RULES, ALPHAS, IGNORED, rule_id
from torch import Tensor

from mlmfast import SettingsError
from mlmfast.functional import ScoringRule, scoring_rule_loss

TARGET = torch.tensor([2, 0, IGNORED, 6, 2])
NO_SMOOTHING = [rule for rule in ALL_RULES if rule.smoothing == 0]


def make_logits(seed: int = 0, scale: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(5, 7, generator=generator, dtype=torch.float64)


def loss(logits: Tensor, rule: ScoringRule, target: Tensor = TARGET, **options: object) -> Tensor:
    return scoring_rule_loss(
        logits,
        target,
        rule=rule.name,
        alpha=rule.alpha,
        smoothing=rule.smoothing,
        masked_log=rule.masked_log,
        **options,
    )


def written_out(probs: list[float], target: int, rule: ScoringRule) -> float:
    """The loss of one row, from the definitions, a class at a time."""
    norm = sum(p**rule.alpha for p in probs) ** (1 / rule.alpha)

    def negative_score(of: int) -> float:
        p, a = probs[of], rule.alpha
        if rule.name == "log":
            return -math.log(p)
        if rule.name == "brier":
            return sum(q**2 for q in probs) - 2 * p
        if rule.name == "spherical":
            return -p / math.sqrt(sum(q**2 for q in probs))
        if rule.name == "power":
            return (a - 1) * sum(q**a for q in probs) - a * p ** (a - 1)
        return -((p / norm) ** (a - 1))

    uniform = rule.smoothing / len(probs)
    value = (1 - rule.smoothing) * negative_score(target)
    value += uniform * sum(negative_score(of) for of in range(len(probs)))
    if rule.masked_log and rule.name != "log":
        value -= uniform * sum(math.log(q) for q in probs if q < uniform)
    return value


@pytest.mark.parametrize("rule", ALL_RULES, ids=rule_id)
def test_the_formula_written_out(rule: ScoringRule) -> None:
    logits = make_logits()
    found = loss(logits, rule, reduction="none")
    for row, (value, target) in enumerate(zip(found.tolist(), TARGET.tolist(), strict=True)):
        wanted = 0.0 if target == IGNORED else written_out(logits[row].softmax(-1).tolist(), target, rule)
        assert value == pytest.approx(wanted, abs=1e-13)


@pytest.mark.parametrize("rule", ALL_RULES, ids=rule_id)
def test_gradients(rule: ScoringRule) -> None:
    assert torch.autograd.gradcheck(
        lambda logits: loss(logits, rule, reduction="none"), make_logits().requires_grad_()
    )


@pytest.mark.parametrize("rule", ALL_RULES, ids=rule_id)
def test_gradients_sum_to_zero_over_the_vocabulary(rule: ScoringRule) -> None:
    logits = make_logits().requires_grad_()
    loss(logits, rule, reduction="sum").backward()
    assert logits.grad is not None
    assert logits.grad.abs().max() > 1e-3
    assert logits.grad.sum(-1).abs().max() < 1e-13


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_log_is_cross_entropy(smoothing: float, reduction: str) -> None:
    logits = make_logits()
    wanted = torch.nn.functional.cross_entropy(logits, TARGET, label_smoothing=smoothing, reduction=reduction)
    found = scoring_rule_loss(logits, TARGET, smoothing=smoothing, reduction=reduction)
    torch.testing.assert_close(found, wanted, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("name", ["power", "pseudospherical"])
def test_both_families_tend_to_the_log_loss(name: str) -> None:
    """(loss + 1) / (alpha - 1) tends to it as alpha falls to 1, its distance in proportion to alpha - 1."""
    logits = make_logits()
    log_loss = scoring_rule_loss(logits, TARGET, reduction="none")
    scored = TARGET != IGNORED
    distances = []
    for low in (1e-3, 1e-4, 1e-5):
        found = (loss(logits, ScoringRule(name, 1 + low), reduction="none") + 1) / low
        distances.append(float((found - log_loss)[scored].abs().max()))
    assert distances[0] < 0.05
    for larger, smaller in itertools.pairwise(distances):
        assert smaller == pytest.approx(larger / 10, rel=0.05)


@pytest.mark.parametrize(("name", "family"), [("brier", "power"), ("spherical", "pseudospherical")])
def test_alpha_two_has_a_name(name: str, family: str) -> None:
    for smoothing in (0.0, 0.2):
        named, general = (ScoringRule(x, 2.0, smoothing) for x in (name, family))
        assert torch.equal(loss(make_logits(), named), loss(make_logits(), general))


@pytest.mark.parametrize("rule", NO_SMOOTHING, ids=rule_id)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), step=st.floats(0.01, 3.0))
def test_rules_are_strictly_proper(rule: ScoringRule, seed: int, step: float) -> None:
    """The loss expected under p is least for the forecast p."""
    forecast = make_logits(seed, scale=1.0)[0]
    truth = forecast.softmax(-1)
    other = forecast + step * make_logits(seed + 1, scale=1.0)[0]
    every_class = torch.arange(7)
    honest, dishonest = (
        truth @ loss(x.expand(7, 7), rule, every_class, reduction="none") for x in (forecast, other)
    )
    assert honest < dishonest


@pytest.mark.parametrize("rule", ALL_RULES, ids=rule_id)
def test_low_precision_logits_are_raised(rule: ScoringRule) -> None:
    logits = make_logits().bfloat16()
    found = loss(logits, rule)
    assert found.dtype == torch.float32
    assert torch.equal(found, loss(logits.float(), rule))


def test_leading_dimensions() -> None:
    logits, target = make_logits()[:4].reshape(2, 2, 7), torch.tensor([[1, 2], [IGNORED, 3]])
    found = scoring_rule_loss(logits, target, rule="brier", reduction="none")
    flat = scoring_rule_loss(logits.flatten(0, 1), target.flatten(), rule="brier", reduction="none")
    assert torch.equal(found, flat.reshape(2, 2))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("name", ["power", "pseudospherical"])
def test_far_logits_stay_finite(name: str, alpha: float) -> None:
    logits = torch.tensor([[0.0, 800.0, -800.0], [0.0, -800.0, 30.0]], requires_grad=True)
    found = scoring_rule_loss(
        logits, torch.tensor([1, 1]), rule=name, alpha=alpha, smoothing=0.1, reduction="sum"
    )
    found.backward()
    assert found.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "crps"}, "rule: expected one of log, brier, spherical, power, pseudospherical, got 'crps'"),
        ({"rule": "power", "alpha": 1.0}, "alpha: expected a number above 1, got 1.0"),
        ({"rule": "power", "alpha": float("nan")}, "alpha: expected a number above 1, got nan"),
        ({"rule": "brier", "alpha": 3.0}, "alpha: rule 'brier' takes none but 2, got 3.0"),
        ({"smoothing": 1.0}, "smoothing: expected a number from 0 to below 1, got 1.0"),
        ({"smoothing": -0.1}, "smoothing: expected a number from 0 to below 1, got -0.1"),
        ({"reduction": "max"}, "reduction: expected one of mean, sum, none, got 'max'"),
        ({"logits": torch.zeros(4, 7)}, r"target: expected \[4\], as of logits, got int64\[5\]"),
        ({"logits": torch.zeros(7)}, r"logits: expected floating-point \[..., V\], got float32\[7\]"),
        ({"logits": torch.zeros(5, 7).long()}, "logits: expected floating-point"),
        ({"target": TARGET.float()}, r"target: expected int64 ids, got float32\[5\]"),
        ({"target": TARGET + 5}, "ids from 0 to 6 or ignore_index -100, got 7 at place 0"),
        ({"target": TARGET, "ignore_index": -1}, "or ignore_index -1, got -100 at place 2"),
    ],
)
def test_bad_input(options: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        scoring_rule_loss(**{"logits": make_logits(), "target": TARGET, **options})
