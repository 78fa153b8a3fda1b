"""Energies of texts under a masked language model: sums over its conditionals, exact or estimated.

E_raw(x) = - sum_t f_t(x_t | x without t) and E_norm(x) = - sum_t log p(x_t | x without t), with f_t the logit
and p its softmax where token t alone is masked: the raw and the locally normalised energy of "Exposing the
Implicit Energy Networks behind Masked Language Models via Metropolis-Hastings" (Goyal et al. 2022). E_norm is
minus the pseudo-log-likelihood. docs/energies.md says what they are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from mlmfast.engines import Outputs
from mlmfast.errors import InputError, SettingsError
from mlmfast.plans import ScoringPlan, check_whole
from mlmfast.random_streams import random_stream
from mlmfast.tokenization import Tokenizer
from mlmfast.types import Int64Array
from mlmfast.window_groups import windows_of
from mlmfast.window_results import not_finite
from mlmfast.windows import Window, placed
from mlmfast.workers import Workers

KINDS = ("raw", "norm")


@dataclass(frozen=True)
class EnergySettings:
    """Options as for `Scorer.energy`. Raises SettingsError for ones that are unknown."""

    kind: str = "raw"
    num_samples: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise SettingsError(f"unknown kind {self.kind!r} of energy; expected one of {', '.join(KINDS)}")
        if self.num_samples is not None:
            check_whole("num_samples", self.num_samples, 1)
        check_whole("seed", self.seed, 0)

    @property
    def outputs(self) -> Outputs:
        """What engines must give of each token."""
        return Outputs(logit=self.kind == "raw")

    def chosen(self, tokens: Int64Array, number: int) -> Int64Array:
        """The tokens among those of text `number` that its energy is computed from: all, or the drawn ones,
        int64[num_samples], some of them several times."""
        if self.num_samples is None or len(tokens) == 0:
            return tokens
        return tokens[random_stream(self.seed, number).integers(len(tokens), size=self.num_samples)]


def energies(
    texts: Iterable[object],
    settings: EnergySettings,
    plan: ScoringPlan,
    tokenizer: Tokenizer,
    workers: Workers,
) -> Iterator[float | None]:
    """The energy of each text in order, None without tokens. plan: of masking `original` and the settings'
    outputs. Raises InputError for a text, naming its index."""

    def windows() -> Iterator[Window]:
        first = 0
        for group in windows_of(([text] for text in texts), plan.masking):
            window = Window([text for (text,) in group], plan, tokenizer)
            if settings.num_samples is not None:
                window.restrict(chosen_of(window, settings, first))
            yield window
            first += len(group)

    first = 0
    for window in workers.run(windows(), plan.outputs):
        for index in range(window.num_inputs):
            yield energy_of(window, index, settings, first + index)
        first += window.num_inputs


def chosen_of(window: Window, settings: EnergySettings, first: int) -> Int64Array:
    """The tokens that the energies of a window's texts need; its first one is text `first` of the call."""
    found = [window.tokens_of(index) for index in range(window.num_inputs)]
    return np.concatenate(
        [
            settings.chosen(tokens, first + index)
            for index, tokens in enumerate(found)
            if not isinstance(tokens, InputError)
        ]
        or [np.zeros(0, dtype=np.int64)]
    )


def energy_of(window: Window, index: int, settings: EnergySettings, number: int) -> float | None:
    """Of input `index` of a window that is computed, text `number` of the call."""
    tokens = window.tokens_of(index)
    if isinstance(tokens, InputError):
        raise placed(tokens, number)
    if len(tokens) == 0:
        return None
    chosen = settings.chosen(tokens, number)
    values = (window.logits if settings.kind == "raw" else window.log_probs)[chosen]
    problem = not_finite(values)
    if problem is not None:
        raise placed(problem, number)
    # The mean over uniform draws, times the tokens, has the sum as its expectation (Wang & Cho 2019).
    return -float(values.sum(dtype=np.float64)) * len(tokens) / len(chosen)
