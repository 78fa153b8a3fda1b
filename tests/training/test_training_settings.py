"""Settings that do not fit are refused where they are made."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mlmfast.errors import SettingsError
from mlmfast.kernels.rules import ScoringRule
from mlmfast.training import MaskingSettings, RowSettings, ScheduleSettings, TrainingSettings

SHORT = TrainingSettings(steps=4)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"batch_size": True}, "batch_size is True"),
        ({"log_steps": 5}, "log_steps is 5, but the run has only 4"),
        ({"log_steps": 2}, "log_steps come before those of another rule"),
        ({"precision": "int8"}, "unknown precision 'int8'"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0"),
        ({"max_gradient_norm": 0.0}, "max_gradient_norm is 0.0"),
        ({"seed": -1}, "seed is -1"),
        ({"rule": ScoringRule("power", 9)}, "alpha is 9; expected at most 6"),
        ({"schedule": ScheduleSettings(1e-3, "cosine", 4)}, "warmup_steps is 4; expected less than the 4"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changed, message):
    with pytest.raises(SettingsError, match=message):
        replace(SHORT, **changed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0,), "learning_rate is 0.0"),
        ((math.nan,), "learning_rate is nan"),
        ((1e-3, "step"), "unknown schedule"),
    ],
)
def test_schedules_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(SettingsError, match=message):
        ScheduleSettings(*arguments)


def test_the_rule_of_every_step():
    settings = TrainingSettings(steps=4, log_steps=2, rule=ScoringRule("spherical", smoothing=0.1))
    rules = [settings.rule_at(step) for step in range(1, 5)]
    assert [rule.name for rule in rules] == ["log", "log", "spherical", "spherical"]
    assert {rule.smoothing for rule in rules} == {0.1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0,), "mask probability is 0.0"),
        ((1.5,), "mask probability is 1.5"),
        ((0.15, 0.9, 0.2), "together are at most 1"),
        ((0.15, -0.1, 0.2), "shares of 0 to 1"),
    ],
)
def test_maskings_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(SettingsError, match=message):
        MaskingSettings(*arguments)


@pytest.mark.parametrize(
    "arguments", [("cut",), ("split", 32)], ids=["unknown overlong", "overlong with blocks"]
)
def test_rows_that_do_not_fit_are_refused(arguments):
    with pytest.raises(SettingsError, match="overlong"):
        RowSettings(*arguments)
