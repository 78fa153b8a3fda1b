"""Tuning of weights with honest figures: cross-fitted, over several optimiser runs, with significance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlmfast.errors import InputError, SettingsError
from mlmfast.rescoring.bootstrap import Blocks, Comparison, blocks_of, compare
from mlmfast.rescoring.corpus import NBestCorpus
from mlmfast.rescoring.metrics import Metric
from mlmfast.rescoring.normalisation import Float64Array
from mlmfast.rescoring.optimisation import SearchSpace, metric_of, optimise
from mlmfast.rescoring.weights import Weights
from mlmfast.types import Int64Array


@dataclass(frozen=True)
class TuningSettings:
    """folds: parts of the cross-fitting. runs: of the whole optimisation, with other random numbers.
    restarts, random_directions: of each optimisation. allow_negative: let LM weights fall below 0.
    speaker: a pattern, see `blocks_of`; folds and resamples keep a speaker together."""

    folds: int = 5
    runs: int = 3
    restarts: int = 5
    random_directions: int = 4
    num_resamples: int = 1000
    seed: int = 0
    allow_negative: bool = False
    speaker: str | None = None

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise SettingsError(f"{name}={getattr(self, name)}: expected at least {least}")


LEAST = {"folds": 2, "runs": 1, "restarts": 0, "random_directions": 0, "num_resamples": 1, "seed": 0}


@dataclass(frozen=True)
class TuningRun:
    """One run. weights float64[F], tuned on all lists; in_sample: the metric there, on the same lists, which
    flatters; cross_fitted: the metric of the lists' held-out winners; fold_weights float64[folds, F]; winners
    int64[L], the held-out ones, as indices into the contenders of the corpus."""

    weights: Float64Array
    in_sample: float
    cross_fitted: float
    fold_weights: Float64Array
    winners: Int64Array


@dataclass(frozen=True)
class TuningReport:
    """What tuning found. weights: those of the best run, judged on the lists it was tuned on.

    first_pass, oracle: the metric of the first pass's choice and of the best choice (a lower bound of it
    unless oracle_is_exact). comparison: the best run's held-out choices against the first pass.
    cross_fitted_mean and cross_fitted_deviation: over the runs (Clark et al. 2011), the deviation of a
    sample, 0 for a single run.
    """

    metric: str
    weights: Weights
    first_pass: float
    oracle: float
    oracle_is_exact: bool
    runs: tuple[TuningRun, ...]
    best_run: int
    comparison: Comparison
    num_folds: int
    num_lists: int
    num_without_reference: int

    @property
    def cross_fitted(self) -> float:
        """The metric to report: every list rescored with weights tuned without it."""
        return self.runs[self.best_run].cross_fitted

    @property
    def cross_fitted_mean(self) -> float:
        return float(np.mean([run.cross_fitted for run in self.runs]))

    @property
    def cross_fitted_deviation(self) -> float:
        values = [run.cross_fitted for run in self.runs]
        return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def tune(
    corpus: NBestCorpus, metric: Metric, start: Weights, settings: TuningSettings = TuningSettings()
) -> TuningReport:
    """Tune all weights of `start` but its first term's, which stays: the scale is arbitrary.

    corpus: made with the feature matrices of the terms of `start`. Raises InputError with fewer than two
    utterances (or speakers) or no reference text.
    """
    first_pass_statistics = corpus.statistics[corpus.first_pass()]
    first_pass = float(metric.value(first_pass_statistics.sum(axis=0)))
    if np.isnan(first_pass):
        raise InputError("the references hold no text to compare with")
    blocks = blocks_of(corpus.ids, settings.speaker)
    if blocks.num_blocks < 2:
        raise InputError(
            f"{blocks.num_blocks} {blocks.unit} with a reference: cross-fitting tunes on some and reports on "
            "others, and needs at least 2"
        )
    fold = folds_of(blocks, settings.folds, settings.seed)
    contenders = corpus.contenders(start.missing)
    space = search_space(start, settings)
    runs = tuple(tuning_run(contenders, metric, space, settings, fold, run) for run in range(settings.runs))
    sign = 1.0 if metric.larger_is_better else -1.0
    best = int(np.argmax([sign * run.in_sample for run in runs]))
    return TuningReport(
        metric=metric.name,
        weights=start.with_values(runs[best].weights),
        first_pass=first_pass,
        oracle=metric_of(corpus, metric, corpus.oracle(metric)),
        oracle_is_exact=metric.oracle_is_exact,
        runs=runs,
        best_run=best,
        comparison=compare(
            metric,
            first_pass_statistics,
            contenders.statistics[runs[best].winners],
            blocks,
            num_resamples=settings.num_resamples,
            seed=settings.seed,
        ),
        num_folds=int(fold.max()) + 1,
        num_lists=corpus.num_lists,
        num_without_reference=corpus.num_without_reference,
    )


def search_space(start: Weights, settings: TuningSettings) -> SearchSpace:
    for term in start.terms:
        if term.kind == "lm" and term.weight < 0 and not settings.allow_negative:
            raise SettingsError(
                f"the search starts with weight {term.weight:g} for {term.name!r}: expected at least 0, "
                "or allow_negative=True"
            )
    free = np.arange(len(start.terms)) > 0
    at_least_zero = [term.kind == "lm" and not settings.allow_negative for term in start.terms]
    return SearchSpace(start.values, free, np.array(at_least_zero))


def tuning_run(
    corpus: NBestCorpus,
    metric: Metric,
    space: SearchSpace,
    settings: TuningSettings,
    fold: Int64Array,
    run: int,
) -> TuningRun:
    """One run over the contenders; fold int64[L], the part each list is held out in."""

    def tuned_on(part: NBestCorpus, number: int) -> Float64Array:
        return optimise(
            part,
            metric,
            space,
            restarts=settings.restarts,
            random_directions=settings.random_directions,
            rng=np.random.default_rng([settings.seed, run, number]),
        )

    winners = np.empty(corpus.num_lists, dtype=np.int64)
    fold_weights = []
    for number in range(int(fold.max()) + 1):
        weights = tuned_on(corpus.subset(np.flatnonzero(fold != number)), number + 1)
        held_out = fold == number
        winners[held_out] = corpus.winners(weights)[held_out]
        fold_weights.append(weights)
    weights = tuned_on(corpus, 0)
    return TuningRun(
        weights,
        metric_of(corpus, metric, corpus.winners(weights)),
        metric_of(corpus, metric, winners),
        np.stack(fold_weights),
        winners,
    )


def folds_of(blocks: Blocks, folds: int, seed: int) -> Int64Array:
    """int64[L], the fold of each list: the blocks, shuffled, dealt out in turn; fewer folds if there are
    fewer blocks."""
    num_blocks = blocks.num_blocks
    order = np.random.default_rng(seed).permutation(num_blocks)
    fold_of_block = np.empty(num_blocks, dtype=np.int64)
    fold_of_block[order] = np.arange(num_blocks) % min(folds, num_blocks)
    return fold_of_block[blocks.index]
