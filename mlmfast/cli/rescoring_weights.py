"""The weights of a combination from options or a file."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from mlmfast.cli.rescoring_options import CombinationOptions
from mlmfast.errors import SettingsError
from mlmfast.io.meta import settings_differences
from mlmfast.rescoring.normalisation import Normalisation
from mlmfast.rescoring.rescorer import Rescorer
from mlmfast.rescoring.weights import (
    FIRST_PASS,
    Term,
    Weights,
    fairseq_mlm_scoring,
    mlm_scoring,
)

logger = logging.getLogger(__name__)


def chosen_weights(
    names: Sequence[str],
    lm_weights: Sequence[float],
    formula: str,
    features: Sequence[str],
    word_bonus: float,
    combination: CombinationOptions,
) -> Weights:
    """The weights that the options of `rescore` give. Raises SettingsError."""
    if len(lm_weights) != len(names):
        raise SettingsError(
            f"{len(names)} models, but {len(lm_weights)} weights: give --weights, or --lm-weight for each"
        )
    normalisation = Normalisation.parse(combination.normalize)
    if formula == "mlm-scoring":
        weights = mlm_scoring(dict(zip(names, lm_weights, strict=True)), normalisation)
    elif len(names) == 1:
        weights = fairseq_mlm_scoring(names[0], 1 - lm_weights[0], normalisation)
    else:
        raise SettingsError(f"--formula {formula} takes one model, not {len(names)}")
    terms = list(weights.terms)
    terms[0] = replace(terms[0], normalisation=Normalisation.parse(combination.normalize_first_pass))
    terms += [feature_term(given, terms[0].normalisation) for given in features]
    if word_bonus:
        terms.append(Term("length", "words", word_bonus))
    return Weights(tuple(terms), combination.missing)


def feature_term(given: str, normalisation: Normalisation) -> Term:
    """The term of NAME=W."""
    name, equals, weight = given.rpartition("=")
    try:
        if equals and name:
            return Term("feature", name, float(weight), normalisation)
    except ValueError as error:
        if isinstance(error, SettingsError):
            raise
    raise SettingsError(f"--feature {given!r}: expected NAME=WEIGHT")


def start_weights(
    names: Sequence[str], features: Sequence[str], word_bonus: bool, combination: CombinationOptions
) -> Weights:
    """Where a search for weights starts: the first pass alone, so that what gains nothing keeps 0."""
    first_pass = replace(FIRST_PASS, normalisation=Normalisation.parse(combination.normalize_first_pass))
    normalisation = Normalisation.parse(combination.normalize)
    terms = [
        first_pass,
        *(Term("lm", name, 0.0, normalisation) for name in names),
        *(Term("feature", name, 0.0, first_pass.normalisation) for name in features),
        *([Term("length", "words", 0.0)] if word_bonus else []),
    ]
    if len(terms) == 1:
        raise SettingsError("there is nothing to tune but the first pass: name a model or --feature NAME")
    return Weights(tuple(terms), combination.missing)


def require_matching(weights: Weights, rescorer: Rescorer, *, where: str) -> None:
    """Raises SettingsError if the weights of a file were tuned with other models, masking or preparation.

    Logs other differences (precision, versions), which change scores only a little.
    """
    settings = rescorer.settings()
    before = weights.made_with.get("environment", {}).get("models", {})
    for difference in settings_differences(before, settings["environment"]["models"]):
        logger.warning("%s was tuned with another %s", where, difference)
    weights.check(settings)
