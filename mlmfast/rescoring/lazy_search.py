"""The winner of a list from as few rows as it takes, provably the one of full scoring.

A log-probability is at most 0, so a sum in which unknown tokens count 0 is an upper bound of the full sum.
The bound is computed by the very operations of full scoring; each of them (addition in a fixed order,
division by a positive and multiplication by a non-negative number) is monotone even as it rounds, so the
bound holds for the rounded totals, and a hypothesis whose tokens are all known has its exact total.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mlmfast.errors import SettingsError
from mlmfast.rescoring.combination import Missing, can_win, check_features, combine, sum_of_checked
from mlmfast.rescoring.normalisation import Float64Array
from mlmfast.rescoring.token_costs import TokenCosts
from mlmfast.types import Float32Array, Int64Array

LogProbs = Callable[[Int64Array], Float32Array]
"""float32[r], the log-probabilities of r tokens int64[r], counted through the hypotheses of the list."""


@dataclass(frozen=True)
class LazyResult:
    """order int64[H]: the winner, then the others in first-pass order; total: the winner's total, NaN if it
    has none. num_rows of the num_rows_full of full scoring were computed, in num_rounds. fallback: why full
    scoring was needed, else None; then the order is that of full scoring."""

    order: Int64Array
    total: float
    num_rows: int
    num_rows_full: int
    num_rounds: int
    fallback: str | None

    @property
    def winner(self) -> int:
        return int(self.order[0])


class LazySearch:
    """Best-first search for the winner of one list: ask `next_rows`, compute them, `tell`, until `done`.

    features float64[H, F] and weights float64[F] as for `combine`; column: the language model's feature, to
    be found here whatever it holds. offsets int64[H+1]: each hypothesis' tokens among the T of the list, none
    for a hypothesis without a score; divisors float64[H]: what its sum is divided by. costs: estimates
    by which the dearest tokens are asked for first; they decide how many rows it takes, never who wins.
    Raises SettingsError for what does not fit together.

    Full scoring takes over, and `result` says so, if the weight is negative or a log-probability above 0 or
    NaN comes in.
    """

    def __init__(
        self,
        features: Float64Array,
        weights: Float64Array,
        column: int,
        offsets: Int64Array,
        divisors: Float64Array,
        costs: TokenCosts,
        *,
        missing: Missing = "first_pass_rank",
    ) -> None:
        check_fit(features, offsets, divisors, costs)
        check_features(features, weights)
        num_tokens = np.diff(offsets)
        self._features = features.copy()
        self._features[:, column] = np.where(num_tokens > 0, 0.0, np.nan)
        self._weights, self._column, self._missing = weights, column, missing
        self._offsets, self._divisors, self._costs = offsets, divisors, costs
        self._owner = np.repeat(np.arange(len(features)), num_tokens)
        self._log_probs = np.zeros(offsets[-1], dtype=np.float32)
        self._known = np.zeros(offsets[-1], dtype=np.bool_)
        self._num_unknown = num_tokens.copy()
        self._num_rows = self._num_rounds = 0
        self._fallback = None if weights[column] >= 0 else f"the weight {weights[column]:g} is below 0"
        self._contenders = can_win(self._features, missing=missing)
        self._bounds = self._upper_bounds(np.arange(len(features)))

    def _upper_bounds(self, hypotheses: Int64Array) -> Float64Array:
        """float64[k], -inf for what cannot win."""
        totals = sum_of_checked(self._features[hypotheses], self._weights)
        return np.where(self._contenders[hypotheses], totals, -np.inf)

    @property
    def _leader(self) -> int:
        return int(np.argmax(self._bounds))

    @property
    def done(self) -> bool:
        """Whether the leader's total is known, so that no other bound is above it, nor equal with a lower
        number; or the leader has none and wins by its first-pass rank alone."""
        if self._fallback is not None:
            return bool(self._known.all())
        return bool(self._num_unknown[self._leader] == 0 or np.isnan(self._bounds[self._leader]))

    def next_rows(self, limit: int) -> Int64Array:
        """int64[r], at most `limit` (at least 1) tokens to compute next.

        The search is played on with the estimated costs of what is not known yet, and stops early where, if
        they were right, it would be done.
        """
        if self._fallback is not None:
            return np.flatnonzero(~self._known)[:limit]
        cost = self._costs.estimates(self._log_probs, self._known)
        unknown = np.flatnonzero(~self._known & self._contenders[self._owner])
        # The unknown tokens of a hypothesis lie together, the dearest first.
        queue = unknown[np.lexsort((-cost[unknown], self._owner[unknown]))]
        places = np.searchsorted(self._owner[queue], np.arange(len(self._features) + 1))
        rate = self._weights[self._column] / self._divisors
        heap = [(-self._bounds[h], int(h)) for h in np.flatnonzero(self._contenders)]
        heapq.heapify(heap)
        next_place, rows = places[:-1].copy(), list[int]()
        while len(rows) < limit:
            negative_bound, h = heap[0]
            if next_place[h] == places[h + 1]:
                break
            token = queue[next_place[h]]
            next_place[h] += 1
            rows.append(int(token))
            heapq.heapreplace(heap, (negative_bound + rate[h] * cost[token], h))
        return np.array(rows, dtype=np.int64)

    def tell(self, tokens: Int64Array, log_probs: Float32Array) -> None:
        """The log-probabilities float32[r] in nats of r different tokens: those asked for, or others too."""
        self._num_rounds += 1
        self._num_rows += len(tokens)
        if self._fallback is None and not (log_probs <= 0).all():
            self._fallback = f"a log-probability is {log_probs[~(log_probs <= 0)][0]:g}, not at most 0"
        self._log_probs[tokens] = log_probs
        self._known[tokens] = True
        changed = np.unique(self._owner[tokens])
        for h in changed:
            start, end = self._offsets[h : h + 2]
            self._num_unknown[h] = np.count_nonzero(~self._known[start:end])
            # Summed as the scorer sums a text, so that the total is the same to the last bit.
            score = self._log_probs[start:end].sum(dtype=np.float64)
            self._features[h, self._column] = score / self._divisors[h]
        if self._fallback is None:
            self._bounds[changed] = self._upper_bounds(changed)

    def result(self) -> LazyResult:
        """The outcome. Raises SettingsError before the search is done."""
        if not self.done:
            raise SettingsError("the search is not done; compute next_rows and tell until it is")
        if self._fallback is None:
            others = np.delete(np.arange(len(self._bounds)), self._leader)
            order = np.concatenate([[self._leader], others])
        else:
            order = combine(self._features, self._weights, missing=self._missing).order
        return LazyResult(
            order=order,
            total=float(sum_of_checked(self._features[order[:1]], self._weights)[0]),
            num_rows=self._num_rows,
            num_rows_full=len(self._known),
            num_rounds=self._num_rounds,
            fallback=self._fallback,
        )


def check_fit(features: Float64Array, offsets: Int64Array, divisors: Float64Array, costs: TokenCosts) -> None:
    if not len(features):
        raise SettingsError("a list without hypotheses has no winner")
    if not len(features) == len(offsets) - 1 == len(divisors):
        raise SettingsError(
            f"{len(features)} hypotheses, {len(offsets)} offsets, {len(divisors)} divisors: "
            "expected one divisor per hypothesis and one offset more"
        )
    if not (np.isfinite(divisors) & (divisors > 0)).all():
        raise SettingsError(f"divisors {divisors}: expected finite numbers above 0")
    if len(costs.expected) != offsets[-1]:
        raise SettingsError(f"{len(costs.expected)} expected costs for {offsets[-1]} tokens")


def find_winner(search: LazySearch, log_probs: LogProbs, *, rows_per_round: int = 1) -> LazyResult:
    """Runs one search to its end. Several searches share batches by calling next_rows and tell themselves."""
    while not search.done:
        tokens = search.next_rows(rows_per_round)
        search.tell(tokens, log_probs(tokens))
    return search.result()
