"""The feature matrix of a list: one column per term of a combination."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlmfast.errors import InputError, SettingsError
from mlmfast.rescoring.lists import Hypothesis
from mlmfast.rescoring.normalisation import Float64Array
from mlmfast.rescoring.weights import Term
from mlmfast.types import Int64Array


@dataclass(frozen=True)
class LanguageModelScores:
    """One model on the H hypotheses of a list. scores float64[H]: sums of log-probabilities in nats, NaN
    where there is none (an empty text); num_tokens int64[H]: the tokens scored."""

    scores: Float64Array
    num_tokens: Int64Array


def feature_matrix(
    hypotheses: Sequence[Hypothesis],
    terms: Sequence[Term],
    language_models: Mapping[str, LanguageModelScores],
) -> Float64Array:
    """float64[H, F], the normalised score of every hypothesis for every term.

    Raises InputError naming the hypothesis that lacks a feature, SettingsError for a language model without
    scores or with another number of them.
    """
    matrix = np.empty((len(hypotheses), len(terms)))
    words = np.array([len(hypothesis.text.split()) for hypothesis in hypotheses], dtype=np.int64)
    for column, term in enumerate(terms):
        if term.kind == "length":
            characters = [len(hypothesis.text) for hypothesis in hypotheses]
            matrix[:, column] = words if term.name == "words" else characters
        elif term.kind == "lm":
            scores = scores_of(term.name, language_models, len(hypotheses))
            matrix[:, column] = scores.scores / term.normalisation.divisors(scores.num_tokens)
        else:
            values = [feature_of(hypothesis, term.name) for hypothesis in hypotheses]
            matrix[:, column] = values / term.normalisation.divisors(words)
    return matrix


def scores_of(
    name: str, language_models: Mapping[str, LanguageModelScores], num_hypotheses: int
) -> LanguageModelScores:
    scores = language_models.get(name)
    if scores is None:
        raise SettingsError(
            f"the weights name the language model {name!r}, but scores came for "
            f"{', '.join(map(repr, language_models)) or 'none'}"
        )
    if not len(scores.scores) == len(scores.num_tokens) == num_hypotheses:
        raise SettingsError(
            f"language model {name!r}: {len(scores.scores)} scores and {len(scores.num_tokens)} token counts "
            f"for {num_hypotheses} hypotheses"
        )
    return scores


def feature_of(hypothesis: Hypothesis, name: str) -> float:
    try:
        return hypothesis.features[name]
    except KeyError as error:
        raise InputError(
            f"no feature {name!r}, only {', '.join(map(repr, hypothesis.features))}",
            where=f"hypothesis {hypothesis.number}",
        ) from error
