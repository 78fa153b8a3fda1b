"""The learning rate of every step, against values worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlmfast.training import ScheduleSettings
from mlmfast.training.schedule import learning_rate
from mlmfast.training.settings import SCHEDULES


def rates(schedule: str, warmup: int, num_steps: int) -> list[float]:
    settings = ScheduleSettings(1.0, schedule, warmup)
    return [learning_rate(step, num_steps, settings) for step in range(1, num_steps + 1)]


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),
    [
        ("constant", 0, [1, 1, 1, 1]),
        ("constant", 2, [0.5, 1, 1, 1]),
        # Half a wave over the 4 steps from the peak at step 1 to 0 at step 5.
        ("cosine", 0, [1, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125)]),
        ("cosine", 2, [0.5, 1, 0.75, 0.25]),
        ("inverse_sqrt", 0, [1, 1 / math.sqrt(2), 1 / math.sqrt(3), 0.5]),
        ("inverse_sqrt", 2, [0.5, 1, math.sqrt(2 / 3), math.sqrt(2 / 4)]),
    ],
)
def test_values(schedule, warmup, expected):
    assert rates(schedule, warmup, 4) == pytest.approx(expected)


def test_one_step_is_at_the_peak():
    assert [rates(schedule, 0, 1) for schedule in SCHEDULES] == [[1.0]] * 3


@given(st.sampled_from(SCHEDULES), st.integers(1, 200), st.data())
def test_rises_to_the_peak_and_never_after(schedule, num_steps, data):
    warmup = data.draw(st.integers(0, num_steps - 1))
    found = rates(schedule, warmup, num_steps)
    peak = max(warmup, 1) - 1
    assert found[peak] == 1.0
    assert found[: peak + 1] == sorted(found[: peak + 1])
    assert found[peak:] == sorted(found[peak:], reverse=True)
    assert min(found) > 0
