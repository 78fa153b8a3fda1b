"""Ranking by weighted sums: ties, missing scores, bad values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mlmfast.errors import InputError, SettingsError
from mlmfast.rescoring.combination import Missing, can_win, combine, weighted_sum
from mlmfast.rescoring.normalisation import Float64Array

NAN = np.nan
SMALL = st.sampled_from([-2.0, -1.0, 0.0, 1.0, NAN])
LISTS = st.integers(1, 6).flatmap(lambda count: arrays(np.float64, (count, 2), elements=SMALL))
POLICIES = st.sampled_from(["first_pass_rank", "last"])


def test_larger_totals_first_and_ties_to_the_lower_number() -> None:
    features = np.array([[-3.0, -9.0], [-4.0, -6.0], [-5.0, -3.0], [-9.0, 0.0]])
    ranking = combine(features, np.array([1.0, 0.5]))
    assert ranking.scores.tolist() == [-7.5, -7.0, -6.5, -9.0]
    assert ranking.order.tolist() == [2, 1, 0, 3]
    assert combine(features, np.array([3.0, 1.0])).order.tolist() == [0, 1, 2, 3]
    assert combine(features[:2], np.array([0.0, 0.0])).order.tolist() == [0, 1]


def test_no_hypothesis_and_one() -> None:
    assert combine(np.zeros((0, 2)), np.ones(2)).order.tolist() == []
    assert combine(np.zeros((1, 2)), np.ones(2)).order.tolist() == [0]
    assert combine(np.array([[1.0, NAN]]), np.ones(2)).order.tolist() == [0]


def test_an_empty_hypothesis_keeps_its_first_pass_rank() -> None:
    features = np.array([[-1.0, -9.0], [-2.0, NAN], [-3.0, -5.0], [-4.0, -1.0]])
    ranking = combine(features, np.ones(2))
    assert ranking.order.tolist() == [3, 1, 2, 0]
    assert np.isnan(ranking.scores).tolist() == [False, True, False, False]
    assert combine(features, np.ones(2), missing="last").order.tolist() == [3, 2, 0, 1]
    # Whatever the weight: at 0 the order is the first pass's.
    assert combine(features, np.array([1.0, 0.0])).order.tolist() == [0, 1, 2, 3]


def test_an_empty_hypothesis_the_first_pass_had_first_stays_first() -> None:
    features = np.array([[-1.0, NAN], [-2.0, -1.0]])
    assert combine(features, np.ones(2)).order.tolist() == [0, 1]
    assert combine(features, np.ones(2), missing="last").order.tolist() == [1, 0]


@given(LISTS, POLICIES)
def test_an_order_is_a_permutation_and_a_missing_score_never_wins(
    features: Float64Array, missing: Missing
) -> None:
    ranking = combine(features, np.ones(2), missing=missing)
    assert sorted(ranking.order.tolist()) == list(range(len(features)))
    winner = ranking.order[0]
    if np.isnan(ranking.scores[winner]):
        assert winner == 0
        assert missing == "first_pass_rank" or np.isnan(ranking.scores).all()
    else:
        present = ~np.isnan(ranking.scores)
        assert ranking.scores[winner] == ranking.scores[present].max()


@given(LISTS, POLICIES, st.tuples(SMALL, SMALL).filter(lambda pair: not np.isnan(pair).any()))
def test_contenders_hold_every_winner(
    features: Float64Array, missing: Missing, weights: tuple[float, float]
) -> None:
    winner = combine(features, np.array(weights), missing=missing).order[0]
    contenders = np.flatnonzero(can_win(features, missing=missing))
    assert winner in contenders
    if len(contenders) > 1:
        totals = weighted_sum(features[contenders], np.array(weights))
        assert winner == contenders[np.argmax(totals)]


def test_totals_do_not_depend_on_the_number_of_hypotheses() -> None:
    rng = np.random.default_rng(0)
    features, weights = rng.normal(size=(64, 7)) * 1e3, rng.normal(size=7)
    alone = [weighted_sum(features[row : row + 1], weights)[0] for row in range(64)]
    assert weighted_sum(features, weights).tolist() == alone


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_features_are_refused(value: float) -> None:
    with pytest.raises(InputError, match=r"hypothesis 2: feature 1 is -?inf: expected a finite number"):
        combine(np.array([[0.0, 0.0], [value, NAN]]), np.ones(2))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), "one weight per feature"),
        (np.array([1.0, NAN]), "expected finite numbers"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights: Float64Array, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        combine(np.zeros((2, 2)), weights)


def test_unknown_policy_is_refused() -> None:
    with pytest.raises(SettingsError, match="unknown missing='first'"):
        combine(np.zeros((2, 2)), np.ones(2), missing="first")  # type: ignore[arg-type]
