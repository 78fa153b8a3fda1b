"""Tuning: optima against brute force, cross-fitting that does not peek, reports that add up."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from random_lists import learnable_corpus, random_corpus

from mlmfast.errors import InputError, SettingsError
from mlmfast.rescoring.bootstrap import Blocks, blocks_of
from mlmfast.rescoring.corpus import NBestCorpus
from mlmfast.rescoring.metrics import ErrorRate
from mlmfast.rescoring.normalisation import Float64Array
from mlmfast.rescoring.optimisation import SearchSpace, metric_of, optimise, spreads, step_bounds
from mlmfast.rescoring.tuning import TuningSettings, folds_of, tune
from mlmfast.rescoring.weights import FIRST_PASS, Term, Weights

METRIC = ErrorRate()
START = Weights((FIRST_PASS, Term("lm", "bert", 0.0)))
SETTINGS = TuningSettings(restarts=2, random_directions=2, runs=2, num_resamples=200)


def best_found(corpus: NBestCorpus, space: SearchSpace, restarts: int = 20) -> Float64Array:
    rng = np.random.default_rng(0)
    return optimise(corpus, METRIC, space, restarts=restarts, random_directions=4, rng=rng)


def value_at(corpus: NBestCorpus, weights: Float64Array) -> float:
    return metric_of(corpus, METRIC, corpus.winners(weights))


@pytest.mark.parametrize("seed", range(4))
def test_one_weight_is_found_exactly(seed: int) -> None:
    corpus = random_corpus(np.random.default_rng(seed), 12, 10, 2)
    space = SearchSpace(np.array([1.0, 0.0]), np.array([False, True]), np.array([False, False]))
    weights = best_found(corpus, space)
    # Crossings are ratios of whole numbers up to 12, so no interval is narrower than 1/132.
    dense = [value_at(corpus, np.array([1.0, w])) for w in np.arange(-12.5, 12.5, 1 / 300) + 1e-4]
    assert value_at(corpus, weights) == min(dense)
    assert weights[0] == 1.0


@pytest.mark.parametrize("seed", range(4))
def test_two_weights_against_a_grid(seed: int) -> None:
    corpus = random_corpus(np.random.default_rng(seed), 10, 6, 3)
    space = SearchSpace(np.array([1.0, 0.0, 0.0]), np.array([False, True, True]), np.zeros(3, dtype=np.bool_))
    found = value_at(corpus, best_found(corpus, space))
    axis = np.arange(-4.0, 4.0, 0.2) + 0.01
    grid = [value_at(corpus, np.array([1.0, a, b])) for a, b in itertools.product(axis, axis)]
    assert found <= min(grid)


def test_bounded_weights_stay_at_least_zero() -> None:
    for seed in range(10):
        corpus = random_corpus(np.random.default_rng(seed), 10, 6, 3)
        space = SearchSpace(
            np.array([1.0, 0.0, 0.0]), np.array([False, True, True]), np.array([False, True, False])
        )
        assert best_found(corpus, space, restarts=3)[1] >= 0
    assert step_bounds(np.array([1.0, 2.0, 3.0]), np.array([0.0, 4.0, -1.0]), np.array([True] * 3)) == (
        -0.5,
        3.0,
    )


def test_what_gains_nothing_stays_at_the_start() -> None:
    corpus = random_corpus(np.random.default_rng(0), 5, 6, 2)
    corpus.statistics[:, 0] = 1
    space = SearchSpace(np.array([1.0, 0.25]), np.array([False, True]), np.array([False, True]))
    assert best_found(corpus, space).tolist() == [1.0, 0.25]


def test_a_constant_feature_does_not_move() -> None:
    corpus = learnable_corpus(np.random.default_rng(0), 20, 0.5)
    constant = np.repeat(np.random.default_rng(1).normal(size=20) * 1e5, 8)
    corpus = replace(corpus, features=np.column_stack([corpus.features, constant]))
    assert spreads(corpus)[2] == 0
    space = SearchSpace(np.array([1.0, 0.0, 0.0]), np.array([False, True, True]), np.zeros(3, dtype=np.bool_))
    weights = best_found(corpus, space)
    assert weights[2] == 0.0
    assert weights[1] != 0.0


def test_a_known_weight_is_recovered_and_the_gain_is_significant() -> None:
    corpus = learnable_corpus(np.random.default_rng(0), 400, 0.5)
    report = tune(corpus, METRIC, START, SETTINGS)
    assert report.weights.values == pytest.approx([1.0, 0.5], abs=0.1)
    assert report.oracle == 0.0
    assert report.oracle < report.runs[0].in_sample <= report.cross_fitted < report.first_pass
    assert report.comparison.value_a == report.first_pass
    assert report.comparison.value_b == report.cross_fitted
    assert report.comparison.interval[0] > 0
    assert report.comparison.p_value < 0.05
    assert (report.comparison.unit, report.comparison.num_blocks) == ("speaker", 12)
    assert (report.num_lists, report.num_folds, report.num_without_reference) == (400, 5, 0)


def test_noise_gains_nothing_that_is_reported() -> None:
    """Tuned on the lists it is judged on, a useless feature seems to help; cross-fitted it does not."""
    in_sample, cross_fitted = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        corpus = learnable_corpus(rng, 40, 0.0)
        corpus.features[:, 1] = rng.normal(size=len(corpus.features))
        corpus.statistics[:, 0] = rng.integers(0, 10, len(corpus.statistics))
        report = tune(corpus, METRIC, START, replace(SETTINGS, runs=1))
        in_sample.append(report.first_pass - report.runs[0].in_sample)
        cross_fitted.append(report.first_pass - report.cross_fitted)
    assert min(in_sample) >= 0
    assert np.mean(in_sample) > 5
    # Two choices at random among edits 0 to 9 of 10 words: a deviation of at most 6.4 with 40 lists.
    assert abs(np.mean(cross_fitted)) < 3 * 6.4 / np.sqrt(20)


def test_held_out_lists_do_not_take_part_in_their_own_tuning() -> None:
    corpus = learnable_corpus(np.random.default_rng(3), 40, 0.5)
    fold = folds_of(blocks_of(corpus.ids), 5, SETTINGS.seed)
    spoilt = replace(corpus, statistics=corpus.statistics.copy())
    held_out = np.flatnonzero(fold[corpus.list_index] == 2)
    spoilt.statistics[held_out, 0] = np.random.default_rng(4).integers(0, 30, len(held_out))
    one, other = (tune(each, METRIC, START, SETTINGS).runs[0].fold_weights for each in (corpus, spoilt))
    assert one[2].tolist() == other[2].tolist()
    assert one[[0, 1, 3, 4]].tolist() != other[[0, 1, 3, 4]].tolist()


def test_runs_are_seeded_and_summarised() -> None:
    corpus = random_corpus(np.random.default_rng(5), 30, 8, 4)
    start = Weights((FIRST_PASS, *(Term("lm", name, 0.0) for name in "abc")))
    report = tune(corpus, METRIC, start, replace(SETTINGS, runs=3))
    again = tune(corpus, METRIC, start, replace(SETTINGS, runs=3))
    assert report.weights == again.weights
    assert report.comparison == again.comparison
    values = [run.cross_fitted for run in report.runs]
    assert report.cross_fitted_mean == pytest.approx(sum(values) / 3)
    assert report.cross_fitted_deviation == pytest.approx(np.std(values) * np.sqrt(1.5))
    assert tune(corpus, METRIC, start, replace(SETTINGS, runs=1)).cross_fitted_deviation == 0.0
    assert report.runs[report.best_run].in_sample == min(run.in_sample for run in report.runs)
    assert (report.weights.values >= 0).all()


def test_missing_scores_do_not_win() -> None:
    corpus = learnable_corpus(np.random.default_rng(0), 60, 0.5)
    # An empty hypothesis with the fewest edits in every list, once first and otherwise last.
    corpus.statistics[:, 0] += 1
    corpus.features[7::8, 1] = np.nan
    corpus.statistics[7::8, 0] = 0
    corpus.features[0, 1] = np.nan
    report = tune(corpus, METRIC, START, SETTINGS)
    assert report.oracle < 1
    winners = report.runs[report.best_run].winners
    contenders = corpus.contenders("first_pass_rank")
    assert winners[0] == 0
    assert contenders.statistics[winners[1:], 0].min() > 0


def test_folds_keep_speakers_together() -> None:
    fold = folds_of(Blocks(np.repeat(np.arange(7), 3), "speaker"), 3, seed=1)
    assert (fold.reshape(7, 3) == fold[::3, None]).all()
    assert sorted(np.bincount(fold[::3]).tolist()) == [2, 2, 3]
    assert sorted(folds_of(Blocks(np.arange(2), "utterance"), 5, seed=0).tolist()) == [0, 1]


def test_too_little_to_tune_on_is_refused() -> None:
    corpus = random_corpus(np.random.default_rng(0), 1, 5, 2)
    with pytest.raises(InputError, match=r"1 utterance with a reference: cross-fitting .* needs at least 2"):
        tune(corpus, METRIC, START)
    corpus = random_corpus(np.random.default_rng(0), 4, 5, 2)
    corpus.statistics[:, 1] = 0
    with pytest.raises(InputError, match="the references hold no text"):
        tune(corpus, METRIC, START)


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SettingsError, match="folds=1: expected at least 2"):
        TuningSettings(folds=1)
    corpus = random_corpus(np.random.default_rng(0), 4, 5, 2)
    negative = START.with_values(np.array([1.0, -0.5]))
    with pytest.raises(SettingsError, match=r"starts with weight -0.5 for 'bert': expected at least 0"):
        tune(corpus, METRIC, negative, SETTINGS)
    assert tune(corpus, METRIC, negative, replace(SETTINGS, allow_negative=True)).num_lists == 4
