"""The lazy search finds the winner of full scoring, bit for bit, from fewer rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from mlmfast.errors import SettingsError
from mlmfast.rescoring.combination import Missing, Ranking, combine
from mlmfast.rescoring.lazy_search import LazyResult, LazySearch, find_winner
from mlmfast.rescoring.normalisation import Float64Array, Normalisation
from mlmfast.rescoring.token_costs import TokenCosts, contexts_of, costs_of, rarity
from mlmfast.scheduling.csr import offsets_of
from mlmfast.types import Float32Array, Int32Array, Int64Array

LM = 1
"""The column of the lazy feature."""


@dataclass
class Problem:
    """A list with all its log-probabilities: features without the LM's, which stand apart."""

    features: Float64Array
    weights: Float64Array
    input_ids: Int32Array
    offsets: Int64Array
    divisors: Float64Array
    log_probs: Float32Array
    missing: Missing = "first_pass_rank"

    def full(self) -> Ranking:
        """What full scoring gives."""
        features = self.features.copy()
        spans = zip(self.offsets[:-1], self.offsets[1:], strict=True)
        sums = [
            self.log_probs[start:end].sum(dtype=np.float64) if end > start else np.nan for start, end in spans
        ]
        features[:, LM] = sums / self.divisors
        return combine(features, self.weights, missing=self.missing)

    def search(self, costs: TokenCosts | None = None) -> LazySearch:
        if costs is None:
            costs = costs_of(self.input_ids, self.offsets)
        return LazySearch(
            self.features, self.weights, LM, self.offsets, self.divisors, costs, missing=self.missing
        )

    def lazy(self, costs: TokenCosts | None = None, rows_per_round: int = 1) -> LazyResult:
        return find_winner(
            self.search(costs), lambda rows: self.log_probs[rows], rows_per_round=rows_per_round
        )


def random_problem(rng: np.random.Generator) -> Problem:
    """A list that looks like a decoder's (variants of one text) in a third of the cases, and otherwise has
    quantised or repeated numbers, so that equal totals are common; empty hypotheses and missing features."""
    count = int(rng.integers(1, 9))
    lengths = rng.integers(0 if rng.random() < 0.3 else 1, 9, count)
    offsets = offsets_of(lengths)
    input_ids = rng.integers(0, 5, offsets[-1]).astype(np.int32)
    kind = rng.integers(3)
    # One number per token id: texts that repeat have equal sums.
    table = [-rng.exponential(2, 5), -rng.integers(0, 4, 5), np.full(5, -0.1)][kind].astype(np.float32)
    log_probs = table[input_ids]
    if kind == 0:
        log_probs = (log_probs - rng.exponential(0.5, len(log_probs))).astype(np.float32)
    features = np.zeros((count, 3))
    features[:, 0] = (
        np.sort(rng.integers(-12, 1, count))[::-1] if kind else -np.sort(rng.exponential(6, count))
    )
    features[:, 2] = lengths
    if rng.random() < 0.1:
        features[rng.integers(count), 2] = np.nan
    weights = np.array([1.0, rng.choice([0.0, 0.3, 1.0, 2.0]), rng.choice([0.0, -0.7, 1.0])])
    normalisation = Normalisation.parse(str(rng.choice(["none", "tokens", "gnmt:0.6"])))
    missing: Missing = "last" if rng.random() < 0.3 else "first_pass_rank"
    return Problem(features, weights, input_ids, offsets, normalisation.divisors(lengths), log_probs, missing)


def test_lazy_is_full_on_10_000_random_lists() -> None:
    rng = np.random.default_rng(0)
    computed = of = 0
    for _ in range(10_000):
        problem = random_problem(rng)
        full = problem.full()
        result = problem.lazy(rows_per_round=int(rng.choice([1, 5, 100])))
        assert result.winner == full.order[0]
        np.testing.assert_array_equal(result.total, full.scores[result.winner])
        rest = [index for index in range(len(full.order)) if index != result.winner]
        assert result.order.tolist() == [result.winner, *rest]
        assert result.fallback is None
        assert result.num_rows <= result.num_rows_full == len(problem.log_probs)
        computed, of = computed + result.num_rows, of + result.num_rows_full
    print(f"{computed} of {of} rows computed, {computed / of:.0%}")
    assert computed < 0.7 * of


def decoder_list(rng: np.random.Generator, count: int = 30, length: int = 15) -> Problem:
    """Variants of one text, a few tokens changed; a token's cost follows from its context."""
    text = rng.integers(0, 1000, length)
    texts = np.where(rng.random((count, length)) < 0.15, rng.integers(0, 1000, (count, length)), text)
    offsets = np.arange(count + 1) * length
    input_ids = texts.reshape(-1).astype(np.int32)
    contexts = contexts_of(input_ids, offsets)
    log_probs = -rng.exponential(3, int(contexts.max()) + 1)[contexts] - rng.exponential(0.3, len(contexts))
    features = np.stack([-np.sort(rng.exponential(10, count)), np.zeros(count)], axis=1)
    return Problem(
        features, np.array([1.0, 1.0]), input_ids, offsets, np.ones(count), log_probs.astype(np.float32)
    )


def test_contexts_and_estimates_save_rows_on_lists_of_variants() -> None:
    rng = np.random.default_rng(1)
    rows = dict.fromkeys(["in order", "contexts", "true costs"], 0)
    full = 0
    for _ in range(20):
        problem = decoder_list(rng)
        alone = np.arange(len(problem.log_probs))
        costs = {
            "in order": TokenCosts(np.ones(len(alone)), ()),
            "contexts": None,
            "true costs": TokenCosts(-problem.log_probs.astype(np.float64), (alone,)),
        }
        for name, estimate in costs.items():
            result = problem.lazy(estimate, rows_per_round=8)
            assert result.winner == problem.full().order[0]
            rows[name] += result.num_rows
        full += result.num_rows_full
    assert rows["true costs"] <= rows["contexts"] < rows["in order"] < full
    assert rows["contexts"] < 0.6 * full


def test_wrong_estimates_cost_rows_only() -> None:
    rng = np.random.default_rng(2)
    for _ in range(300):
        problem = random_problem(rng)
        count = len(problem.log_probs)
        wrong = TokenCosts(rng.normal(0, 50, count), (rng.integers(0, 3, count),))
        assert problem.lazy(wrong, rows_per_round=int(rng.integers(1, 9))).winner == problem.full().order[0]


def test_ties_go_to_the_lower_number() -> None:
    problem = Problem(
        np.array([[-4.0, 0.0], [-2.0, 0.0], [-2.0, 0.0]]),
        np.ones(2),
        np.zeros(3, dtype=np.int32),
        np.array([0, 1, 2, 3]),
        np.ones(3),
        np.array([-1.0, -3.0, -3.0], dtype=np.float32),
    )
    assert problem.full().scores.tolist() == [-5.0, -5.0, -5.0]
    assert problem.lazy().winner == 0


def test_rounds_ask_for_at_most_the_limit_and_never_twice() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        problem = random_problem(rng)
        search = problem.search()
        seen: set[int] = set()
        while not search.done:
            rows = search.next_rows(4)
            assert 1 <= len(rows) <= 4
            assert len(set(rows.tolist()) | seen) == len(rows) + len(seen)
            seen |= set(rows.tolist())
            search.tell(rows, problem.log_probs[rows])
        assert search.result().num_rows == len(seen)


def test_rows_that_were_not_asked_for_count_too() -> None:
    problem = decoder_list(np.random.default_rng(4))
    search = problem.search()
    everything = np.arange(len(problem.log_probs))
    search.tell(everything, problem.log_probs)
    assert search.done
    assert search.result().winner == problem.full().order[0]
    assert search.result().num_rows == len(everything)


def test_an_empty_hypothesis_that_wins_by_its_rank_needs_no_row() -> None:
    problem = decoder_list(np.random.default_rng(5), count=3, length=4)
    problem.offsets = np.array([0, 0, 4, 12])
    result = problem.lazy()
    assert (result.winner, result.num_rows) == (0, 0)
    assert np.isnan(result.total)
    problem.missing = "last"
    assert problem.lazy().winner == problem.full().order[0] != 0


def test_a_negative_weight_falls_back_to_full_scoring() -> None:
    problem = decoder_list(np.random.default_rng(6), count=4)
    problem.weights = np.array([1.0, -0.5])
    result = problem.lazy(rows_per_round=7)
    assert result.order.tolist() == problem.full().order.tolist()
    assert result.fallback == "the weight -0.5 is below 0"
    assert result.num_rows == result.num_rows_full


@pytest.mark.parametrize("value", [0.25, np.nan])
def test_a_log_probability_that_is_none_falls_back_to_full_scoring(value: float) -> None:
    problem = decoder_list(np.random.default_rng(7), count=4)
    problem.log_probs[problem.search().next_rows(1)] = value
    result = problem.lazy()
    assert result.order.tolist() == problem.full().order.tolist()
    assert result.fallback == f"a log-probability is {value:g}, not at most 0"
    assert result.num_rows == result.num_rows_full


def test_no_result_before_the_end() -> None:
    with pytest.raises(SettingsError, match="the search is not done"):
        decoder_list(np.random.default_rng(8)).search().result()


def test_what_does_not_fit_is_refused() -> None:
    costs = TokenCosts(np.ones(2), ())
    features, weights, offsets, divisors = np.zeros((1, 2)), np.ones(2), np.array([0, 2]), np.ones(1)
    with pytest.raises(SettingsError, match="a list without hypotheses has no winner"):
        LazySearch(features[:0], weights, LM, offsets[:1], divisors[:0], costs)
    with pytest.raises(SettingsError, match="one divisor per hypothesis and one offset more"):
        LazySearch(features, weights, LM, offsets, np.ones(2), costs)
    with pytest.raises(SettingsError, match="finite numbers above 0"):
        LazySearch(features, weights, LM, offsets, np.zeros(1), costs)
    with pytest.raises(SettingsError, match="2 expected costs for 3 tokens"):
        LazySearch(features, weights, LM, np.array([0, 3]), divisors, costs)


def test_contexts_and_rarity() -> None:
    ids = np.array([1, 2, 3, 1, 2, 4, 9, 2, 3, 7], dtype=np.int32)
    offsets = np.array([0, 3, 6, 6, 9, 10])
    contexts = contexts_of(ids, offsets)
    assert contexts[0] == contexts[3]
    assert contexts[2] == contexts[8]
    assert len(set(contexts.tolist())) == 8
    assert rarity(contexts, offsets).tolist() == [0.75, 1, 0.75, 0.75, 1, 1, 1, 1, 0.75, 1]
    assert contexts_of(ids[:0], np.array([0, 0])).tolist() == []


def test_estimates_learn_from_what_is_known() -> None:
    narrow, wide = np.array([0, 0, 1, 2]), np.array([0, 0, 1, 1])
    costs = TokenCosts(np.array([1.0, 1.0, 2.0, 4.0]), (narrow,))
    log_probs = np.array([-3.0, 0.0, 0.0, -4.0], dtype=np.float32)
    nothing = np.zeros(4, dtype=np.bool_)
    assert costs.estimates(log_probs, nothing).tolist() == [1.0, 1.0, 2.0, 4.0]
    assert costs.estimates(log_probs, np.array([True, False, False, True])).tolist() == [3.0, 3.0, 3.0, 4.0]
    both = TokenCosts(costs.expected, (narrow, wide))
    assert both.estimates(log_probs, np.array([True, False, False, True])).tolist() == [3.0, 3.0, 4.0, 4.0]
