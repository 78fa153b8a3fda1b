"""What a student learns from: distances between its values and the teacher's.

A token's target is the teacher's log-probability of it with itself masked, a text's is their sum, the PLL.
Both are standardised, (target - mean) / deviation over the tokens or texts trained on; the student's head
gives the standardised value, and what is written has mean and deviation folded in.

Head `token`, with errors d_i of the T tokens of a batch's texts s, in standard deviations:

    (1 / T) * (sum over i of rho(d_i) + sentence_weight * sum over s of (sum over i in s of d_i)^2)

rho is the square, or beyond `huber` the line that continues it, 2 * huber * |d| - huber^2 (Huber 1964). If
the errors of a text's tokens are independent, the second sum is as large as the first; where they are not, it
keeps the sums, which rank texts, from drifting away. Training both together is this project's own.

Head `cls`: the mean over texts of the squared error of the PLL predicted from the first token (Salazar et al.
2020, on scoring without masks).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import huber_loss

from mlmfast.training.distillation.settings import LossSettings
from mlmfast.types import Float32Array


@dataclass(frozen=True)
class Scale:
    """Mean and deviation of targets, in nats."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, targets: Float32Array) -> Scale:
        """Of targets that are not NaN; a deviation of 0 counts as 1."""
        values = targets[~np.isnan(targets)].astype(np.float64)
        return cls(float(values.mean()), float(values.std()) or 1.0)

    def standardised(self, targets: Float32Array) -> Float32Array:
        return ((targets - self.mean) / self.deviation).astype(np.float32)


def token_loss(values: Tensor, targets: Tensor, settings: LossSettings) -> Tensor:
    """values [b, L]; targets [b, L], standardised, NaN where a token is special or padding."""
    is_target = ~targets.isnan()
    error = torch.where(is_target, values - targets, 0.0)
    of_tokens = 2 * huber_loss(error, torch.zeros_like(error), reduction="sum", delta=settings.huber)
    of_texts = error.sum(dim=1).square().sum()
    return (of_tokens + settings.sentence_weight * of_texts) / is_target.sum()


def text_loss(values: Tensor, targets: Tensor) -> Tensor:
    """values [b], targets [b], standardised."""
    return (values - targets).square().mean()
