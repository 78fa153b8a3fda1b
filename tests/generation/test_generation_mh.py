"""Metropolis-Hastings: its stationary distribution by enumeration, its early rejection, its costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from generation_toys import (
    CLS,
    FIRST,
    MASK,
    SEP,
    LogitsOf,
    ScriptedRandom,
    all_states,
    chain_of,
    free_start,
    hashed,
    tabulated,
    toy_scorer,
)
from plain_samplers import acceptance_ratio, energy, masked, potential

from mlmfast.errors import InputError
from mlmfast.generation import GenerationSettings, StartState, generate, metropolis_hastings
from mlmfast.generation.metropolis_hastings import MetropolisHastings, log_acceptance, own_term
from mlmfast.generation.rows import answer
from mlmfast.generation.run import distributions_of

PROPOSALS = [
    {},
    {"temperature": 0.4},
    {"temperature": 2.5},
    {"top_k": 2},
    {"top_p": 0.7},
    {"top_k": 3, "top_p": 0.8, "temperature": 1.6},
]
LENGTH, NUM_TOKENS = 3, 4


def target(logits_of: LogitsOf, states: list[tuple[int, ...]], kind: str) -> np.ndarray:
    energies = np.array([energy(logits_of, state, kind) for state in states])
    weights = np.exp(energies.min() - energies)
    return weights / weights.sum()


def proposals_at(
    logits_of: LogitsOf, settings: GenerationSettings, state: tuple[int, ...], i: int
) -> tuple[list[int], np.ndarray]:
    """The tokens that can be proposed at i and their probabilities, float64[m]."""
    distributions = distributions_of(toy_scorer(logits_of, NUM_TOKENS), settings)
    ids, weights = distributions.truncated.support(logits_of(masked(state, [i]), i))
    return ids.tolist(), weights / weights.sum()


def log_ratio(
    logits_of: LogitsOf, settings: GenerationSettings, state: tuple[int, ...], i: int, token: int
) -> float:
    """By the package's functions."""
    proposed = (*state[:i], token, *state[i + 1 :])
    others = [t for t in range(len(state)) if t != i]
    kind = str(settings.energy)
    before, after = (np.array([potential(logits_of, s, t, kind) for t in others]) for s in (state, proposed))
    logits = logits_of(masked(state, [i]), i).astype(np.float64)
    own = own_term(logits[token] - logits[state[i]], settings.temperature)
    return log_acceptance(before, after, own)


@pytest.mark.parametrize("kind", ["raw", "norm"])
@pytest.mark.parametrize("proposals", PROPOSALS, ids=str)
def test_the_target_is_stationary_exactly(proposals, kind):
    """pi P = pi, and pi(x) P(x, x') = pi(x') P(x', x) for each pair."""
    logits_of = hashed(NUM_TOKENS, 1.0)
    settings = GenerationSettings("mh", energy=kind, **proposals)
    states = all_states(LENGTH, NUM_TOKENS)
    number = {state: index for index, state in enumerate(states)}
    matrix = np.zeros((len(states), len(states)))
    for state in states:
        for i in range(LENGTH):
            ids, probabilities = proposals_at(logits_of, settings, state, i)
            if state[i] not in ids:
                continue  # all are rejected
            for token, probability in zip(ids, probabilities, strict=True):
                if token != state[i]:
                    ratio = math.exp(log_ratio(logits_of, settings, state, i, token))
                    proposed = (*state[:i], token, *state[i + 1 :])
                    matrix[number[state], number[proposed]] += probability * min(1, ratio) / LENGTH
        matrix[number[state], number[state]] = 1 - matrix[number[state]].sum()
    pi = target(logits_of, states, kind)
    assert (matrix >= 0).all()
    assert np.count_nonzero(matrix) > 2 * len(states)
    np.testing.assert_allclose(pi @ matrix, pi, rtol=0, atol=1e-12)
    flow = pi[:, None] * matrix
    np.testing.assert_allclose(flow, flow.T, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["raw", "norm"])
@pytest.mark.parametrize("proposals", PROPOSALS, ids=str)
def test_steps_decide_by_the_acceptance_ratio(proposals, kind):
    """Each proposal from each state, with random numbers just on both sides of its acceptance."""
    logits_of = hashed(NUM_TOKENS, 1.0)
    settings = GenerationSettings("mh", energy=kind, **proposals)
    scorer = toy_scorer(logits_of, NUM_TOKENS)
    num_decided = 0
    for state in all_states(2, NUM_TOKENS):
        for i in range(2):
            ids, probabilities = proposals_at(logits_of, settings, state, i)
            for token, middle in zip(ids, probabilities.cumsum() - probabilities / 2, strict=True):
                proposed = (*state[:i], token, *state[i + 1 :])

                def step(exponential: float, state=state, i=i, middle=middle) -> tuple[bool, tuple[int, ...]]:
                    chain = chain_of(scorer, free_start(state), settings)
                    sampler = MetropolisHastings(chain)
                    run(scorer, sampler.begin())
                    chain.random = ScriptedRandom(i, middle, exponential)
                    accepted = run(scorer, sampler.step(1))
                    found = tuple(chain.input_ids.tolist())
                    expected = energy(logits_of, found, kind)
                    assert run(scorer, sampler.energy()) == pytest.approx(expected, abs=1e-5)
                    return accepted, found

                if token == state[i]:
                    assert step(0.0) == (True, state)
                    continue
                if state[i] not in ids:
                    assert step(1e9) == (False, state)
                    continue
                expected = log_ratio(logits_of, settings, state, i, token)
                dense = np.zeros(FIRST + NUM_TOKENS)
                dense[ids] = probabilities
                ratio = acceptance_ratio(logits_of, state, proposed, dense, i, kind)
                assert math.exp(expected) == pytest.approx(ratio, rel=1e-9)
                assert step(max(-expected, 0) + 1e-5) == (True, proposed)
                if expected < -1e-5:
                    assert step(-expected - 1e-5) == (False, state)
                    num_decided += 1
    assert num_decided > 5


def run(scorer, asking):
    """What a part of a chain ends with, its requests answered."""
    try:
        request = next(asking)
        while True:
            request = asking.send(answer(scorer, [request])[0])
    except StopIteration as end:
        return end.value


@pytest.mark.parametrize(
    "settings",
    [
        {"energy": "raw"},
        {"energy": "norm", "temperature": 1.5},
        {"energy": "norm", "top_k": 3},
        {"energy": "raw", "top_p": 0.8, "burn_in": 4},
    ],
    ids=str,
)
def test_the_target_is_sampled(settings):
    """All states of independent chains within 4.5 standard deviations."""
    logits_of, num_chains = hashed(3, 0.7), 1000
    states = all_states(2, 3)
    asked = GenerationSettings("mh", steps=20, **settings, seed=5)
    starts = [free_start((MASK, MASK))] * num_chains
    chains = list(generate(toy_scorer(logits_of, 3), starts, asked, num_together=num_chains))
    counts = np.bincount([states.index(tuple(c[-1].input_ids.tolist())) for c in chains], minlength=9)
    pi = target(logits_of, states, settings["energy"])
    assert (np.abs(counts / num_chains - pi) < 4.5 * np.sqrt(pi * (1 - pi) / num_chains)).all()


def test_the_two_variables_of_the_literature():
    """P(X1 | X2) P(X2 | X1) is [.495, .005, .005, .495] once normalised. Chains hardly ever cross from one of
    the likely states to the other, so half of them start from each."""
    copy, coin = {0: [0.99, 0.01], 1: [0.01, 0.99]}, {0: [0.5, 0.5], 1: [0.5, 0.5]}
    logits_of = tabulated([copy, coin])
    expected = np.array([0.495, 0.005, 0.005, 0.495])
    pi = target(logits_of, all_states(2, 2), "raw")
    np.testing.assert_allclose(pi, expected, atol=1e-7)
    num_chains = 1000
    asked = GenerationSettings("mh", steps=30, seed=8)
    starts = [free_start((5, 5)), free_start((6, 6))] * (num_chains // 2)
    chains = generate(toy_scorer(logits_of, 2), starts, asked, num_together=num_chains)
    counts = np.bincount([all_states(2, 2).index(tuple(c[-1].input_ids)) for c in chains], minlength=4)
    bounds = 4.5 * np.sqrt(expected * (1 - expected) / num_chains)
    assert (np.abs(counts / num_chains - expected) < bounds).all()


def test_early_rejection_changes_no_state_and_saves_rows(monkeypatch):
    logits_of = hashed(6, 2.5)
    starts = [free_start([MASK] * 16)] * 4
    asked = GenerationSettings("mh", steps=40, energy="norm", record_every=1, seed=1)
    found = {}
    for chunk in (1, 4, 1000):
        monkeypatch.setattr(metropolis_hastings, "CHUNK", chunk)
        scorer = toy_scorer(logits_of, 6)
        chains = list(generate(scorer, starts, asked))
        states = [(s.input_ids.tolist(), s.energy, s.accepted) for chain in chains for s in chain]
        found[chunk] = (states, scorer.engine.num_rows)
    assert found[1][0] == found[4][0] == found[1000][0]
    assert found[1][1] < found[4][1] < found[1000][1]
    accepted = [accepted for _, _, accepted in found[4][0] if accepted is not None]
    assert 0.05 < np.mean(accepted) < 0.95


def test_the_bound_of_some_terms_is_never_below_the_whole():
    rng = np.random.default_rng(0)
    for _ in range(500):
        before, after = -rng.exponential(10.0 ** rng.integers(-8, 6), (2, 20))
        own = rng.normal(0, 5)
        bounds = [log_acceptance(before, after[:k], own) for k in range(21)]
        assert bounds == sorted(bounds, reverse=True)
        assert bounds[-1] == pytest.approx(own + after.sum() - before.sum(), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("change", "expected"), [(0.0, 0.0), (2.0, -math.inf), (-2.0, math.inf)])
def test_the_own_term_at_the_least_temperature(change, expected):
    """A number, which a product with 1 - 1/tau is not."""
    assert own_term(change, 5e-324) == expected
    potentials = np.array([-3.0, 4.0])
    assert log_acceptance(potentials, potentials, own_term(change, 5e-324)) == expected


def test_what_a_proposal_costs():
    """L rows for the start; then 1 for an equal or irreversible proposal, L for another."""
    logits_of = hashed(4)
    ids = np.array([CLS, 5, 6, 7, 8, SEP], dtype=np.int32)
    start = StartState(ids, np.array([False, True, True, False, True, False]))
    asked = GenerationSettings("mh", steps=40, record_every=1, top_k=2)
    scorer = toy_scorer(logits_of, 4)
    [states] = generate(scorer, [start], asked)
    costs = {4: 0, 1: 0}
    expected = 4
    random = chain_of(scorer, start, asked).random
    for before in states[:-1]:
        i = [1, 2, 4][random.integers(3)]
        random.standard_exponential()
        row = tuple(before.input_ids.tolist())
        kept, weights = distributions_of(scorer, asked).truncated.support(logits_of(masked(row, [i]), i))
        token = kept[np.searchsorted(weights.cumsum(), random.random() * weights.sum(), side="right")]
        full = token != row[i] and row[i] in kept
        cost = 4 if full else 1
        costs[cost] += 1
        expected += cost
    assert scorer.engine.num_rows == expected
    assert costs[1] > 3
    assert costs[4] > 3


def test_a_start_that_could_never_change_is_refused_after_the_chains_before_it():
    allowed = np.arange(FIRST + 4) != 5
    asked = GenerationSettings("mh", steps=30, record_every=1)
    starts = [free_start((6, 6)), free_start((6, 5))]
    chains = generate(toy_scorer(hashed(4), 4), starts, asked, allowed=allowed)
    tokens = np.array([state.input_ids for state in next(chains)])
    assert len(set(tokens.ravel().tolist())) > 1
    assert 5 not in tokens
    with pytest.raises(InputError, match="chain 1: position 1 is free and holds token 5"):
        next(chains)


def test_a_start_is_filled_before_step_0():
    asked = GenerationSettings("mh", steps=1, record_every=1)
    [states] = generate(toy_scorer(hashed(4), 4), [free_start((MASK, 6, MASK))], asked)
    assert [state.step for state in states] == [0, 1]
    assert MASK not in states[0].input_ids
    assert states[0].accepted is None
    assert isinstance(states[1].accepted, bool)
