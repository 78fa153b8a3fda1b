"""Scores from one unmasked pass, which a student has to beat: as they are, and corrected without training.

The third baseline, which is trained, is in student_fell_swoop.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from student_material import Part
from student_scores import Judged, Scores, cached_scores, scorer_judged

import mlmfast


@dataclass(frozen=True)
class Correction:
    """Gordon, Lu & Abbeel 2025 (Protein Language Model Fitness Is a Matter of Preference, ICLR), theorem 4.1
    and algorithm 2.

    Of the tokens a model was trained to predict, a share `random` stood replaced by random ones and a share
    `kept` as they are, 0.1 each in BERT's scheme; the rest was masked. A token that is not masked is random
    with probability random / (random + kept), and then says nothing, so that the model can know no more than
    under a mask; else it is the answer. So q = (random * p + kept) / (random + kept), where q is the
    probability of the token that is there and p its probability under a mask; solved for p, never below
    `epsilon`.
    """

    random: float = 0.1
    kept: float = 0.1
    epsilon: float = 1e-3

    def __post_init__(self) -> None:
        if not (self.random > 0 and self.kept >= 0 and 0 < self.epsilon < 1):
            raise ValueError(f"{self}: expected random > 0, kept >= 0, and epsilon between 0 and 1")

    def __call__(self, log_probs: ArrayLike) -> NDArray[np.float64]:
        """Log-probabilities [...] of unmasked tokens to estimates of those under a mask, natural logs."""
        q = np.exp(np.asarray(log_probs, dtype=np.float64))
        p = ((self.random + self.kept) * q - self.kept) / self.random
        return np.log(np.maximum(p, self.epsilon))


def unmasked(scorer: mlmfast.Scorer) -> Judged:
    """The model's own log-probabilities in one pass that masks nothing."""
    return scorer_judged("unmasked", scorer, "none")


def corrected(own: Judged, correction: Correction, cache: Path) -> Judged:
    """The unmasked log-probabilities of `own`, corrected."""

    def score(part: Part) -> Scores:
        scores = cached_scores(cache, own, part)
        assert scores.log_probs is not None
        return Scores.of_tokens(correction(scores.log_probs), scores.num_tokens)

    settings = {**own.settings, "correction": [correction.random, correction.kept, correction.epsilon]}
    return Judged(f"corrected, epsilon {correction.epsilon:g}", settings, score)
