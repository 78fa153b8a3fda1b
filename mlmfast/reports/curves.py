"""A metric against the weight of one term, exactly."""

from __future__ import annotations

import numpy as np

from mlmfast.reports.contents import Figure, WeightCurve
from mlmfast.rescoring.corpus import NBestCorpus
from mlmfast.rescoring.line_search import Profile, profile
from mlmfast.rescoring.metrics import Metric
from mlmfast.rescoring.normalisation import Float64Array
from mlmfast.rescoring.optimisation import metric_of, spreads
from mlmfast.rescoring.weights import Weights

SHOWN_WEIGHTS = 2.5
"""The shown range reaches to this many times the weight, if any corner of the curve is beyond it."""
WIDEST_RANGE = 6.0


def weight_curves(
    corpus: NBestCorpus,
    metric: Metric,
    weights: Weights,
    lines: tuple[Figure, ...],
    fold_weights: Float64Array | None = None,
) -> tuple[WeightCurve, ...]:
    """A curve for each term after the first that distinguishes hypotheses.

    corpus: with the features of the terms of `weights`, or with none, for which there is no curve.
    fold_weights float64[folds, F], of a cross-fitting.
    """
    if not corpus.features.shape[1]:
        return ()
    contenders = corpus.contenders(weights.missing)
    values = weights.values
    value = metric_of(contenders, metric, contenders.winners(values))
    folds = np.zeros((0, len(values))) if fold_weights is None else fold_weights
    curves = []
    for column in np.flatnonzero(spreads(contenders) > 0):
        if column == 0:
            continue
        origin, direction = values.copy(), np.zeros(len(values))
        origin[column], direction[column] = 0.0, 1.0
        line = profile(contenders, metric, origin, direction)
        weight = float(values[column])
        low, high = shown_range(line, weight)
        name = weights.terms[column].name
        curves.append(WeightCurve(name, metric.name, line, weight, value, low, high, lines, folds[:, column]))
    return tuple(curves)


def shown_range(line: Profile, weight: float) -> tuple[float, float]:
    """From 0 to beyond the weight, on its side of 0: as far as most corners of the curve lie, within
    bounds."""
    sign = -1.0 if weight < 0 else 1.0
    distances = sign * line.edges[sign * line.edges > 0]
    reach = float(np.quantile(distances, 0.8)) if len(distances) else 1.0
    if weight:
        reach = float(np.clip(reach, SHOWN_WEIGHTS * abs(weight), WIDEST_RANGE * abs(weight)))
    return (0.0, reach) if sign > 0 else (-reach, 0.0)
