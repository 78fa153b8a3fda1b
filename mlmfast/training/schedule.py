"""The learning rate of every step."""

from __future__ import annotations

import math

from mlmfast.training.settings import ScheduleSettings


def learning_rate(step: int, num_steps: int, settings: ScheduleSettings) -> float:
    """The learning rate of step `step`, counted from 1, of `num_steps`.

    It rises linearly to its peak at the last step of the warm-up. Then: `constant`; `cosine`, half a wave
    that reaches 0 just after the last step (Loshchilov & Hutter 2017, equation 5); `inverse_sqrt`, the peak
    times sqrt(warm-up / step) (Vaswani et al. 2017, section 5.3; a warm-up of 0 counts as 1).

    >>> [learning_rate(s, 8, ScheduleSettings(1.0, "constant", 4)) for s in (1, 4, 8)]
    [0.25, 1.0, 1.0]
    """
    peak, warmup = settings.learning_rate, settings.warmup_steps
    if step <= warmup:
        return peak * step / warmup
    if settings.schedule == "cosine":
        first = max(warmup, 1)
        return peak * 0.5 * (1 + math.cos(math.pi * (step - first) / (num_steps + 1 - first)))
    if settings.schedule == "inverse_sqrt":
        return peak * math.sqrt(max(warmup, 1) / step)
    return peak
