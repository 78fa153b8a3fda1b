"""Samplers against plain loops over one chain, and against the distributions that theory gives."""

from __future__ import annotations

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
from plain_samplers import PlainChain, energy, potential

from mlmfast.generation import GenerationSettings, StartState, generate
from mlmfast.generation.mask_predict import num_masked
from mlmfast.generation.requests import Drawn
from mlmfast.generation.samplers import Resampler

COPY, COIN = {0: [0.99, 0.01], 1: [0.01, 0.99]}, {0: [0.5, 0.5], 1: [0.5, 0.5]}
"""P(X1 | X2) and P(X2 | X1): two conditionals that no joint distribution has."""

SAMPLERS = [
    {"sampler": "gibbs", "steps": 23},
    {"sampler": "gibbs", "steps": 23, "temperature": 0.6, "mask_sampled": False},
    {"sampler": "gibbs", "steps": 23, "top_k": 2, "burn_in": 9},
    {"sampler": "gibbs", "steps": 23, "greedy": True, "burn_in": 9},
    {"sampler": "gibbs", "steps": 2},
    {"sampler": "sequential", "sweeps": 3},
    {"sampler": "sequential", "sweeps": 3, "top_p": 0.6},
    {"sampler": "sequential", "steps": 2, "mask_sampled": False},
    {"sampler": "parallel", "sweeps": 4},
    {"sampler": "parallel", "sweeps": 4, "mask_sampled": False},
    {"sampler": "block", "sweeps": 3},
    {"sampler": "block", "steps": 1, "block_size": 2},
    {"sampler": "block", "steps": 5, "block_size": 99},
    {"sampler": "mask_predict", "steps": 4},
    {"sampler": "mask_predict", "steps": 1},
    {"sampler": "mask_predict", "steps": 13},
    {"sampler": "mask_predict", "steps": 4, "greedy": False, "top_p": 0.9, "burn_in": 2},
    {"sampler": "mh", "sweeps": 4},
    {"sampler": "mh", "sweeps": 4, "energy": "norm", "temperature": 1.7, "top_k": 3},
    {"sampler": "mh", "sweeps": 4, "energy": "norm", "top_p": 0.8, "burn_in": 6},
]
STARTS = [(MASK,) * 6, (5, MASK, 6, 8, MASK), (7, 5, 5, 8, 8, 6, 7), (5,), (MASK,)]


@pytest.mark.parametrize("settings", SAMPLERS, ids=str)
def test_chains_are_those_of_plain_loops(settings):
    logits_of = hashed(4)
    asked = GenerationSettings(**settings, record_every=1, seed=11)
    starts = [free_start(start) for start in STARTS]
    chains = list(generate(toy_scorer(logits_of, 4), starts, asked, first_chain=3))
    for number, (start, states) in enumerate(zip(STARTS, chains, strict=True), 3):
        expected = list(PlainChain(logits_of, asked, number).states(start, list(range(len(start)))))
        assert [tuple(state.input_ids.tolist()) for state in states] == expected
        assert [state.step for state in states] == list(range(len(expected)))
        assert {state.chain for state in states} == {number}


@pytest.mark.parametrize("settings", SAMPLERS, ids=str)
def test_fixed_and_special_tokens_stay_and_no_mask_is_left(settings):
    ids = np.array([CLS, 5, MASK, 6, 3, MASK, 8, SEP], dtype=np.int32)  # 3: the unknown token
    is_free = np.array([False, False, True, True, False, True, False, False])
    asked = GenerationSettings(**settings, record_every=1)
    for states in generate(toy_scorer(hashed(4), 4), [StartState(ids, is_free)] * 5, asked):
        for state in states:
            np.testing.assert_array_equal(state.input_ids[~is_free], ids[~is_free])
            sampled = state.input_ids[is_free]
            assert ((sampled >= FIRST) | (sampled == MASK)).all()
        assert (states[-1].input_ids != MASK).all()
        assert states[-1].input_ids.dtype == np.int32


def transitions(logits_of: LogitsOf, sampler: str, step: int, integer: int) -> np.ndarray:
    """float64[S, S]: the probabilities of one step from each state, by the sampler's own code."""
    scorer = toy_scorer(logits_of, 2)
    states = all_states(2, 2)
    matrix = np.zeros((len(states), len(states)))
    for row, state in enumerate(states):
        for token in range(FIRST, FIRST + 2):
            chain = chain_of(scorer, free_start(state), GenerationSettings(sampler))
            chain.random = ScriptedRandom(integer)
            asking = Resampler(chain).step(step)
            request = next(asking)
            [position] = request.positions
            masked_row = tuple(MASK if i == position else t for i, t in enumerate(state))
            ids, weights = request.distribution.support(logits_of(masked_row, position))
            with pytest.raises(StopIteration):
                asking.send(Drawn(np.array([token]), np.zeros(1), np.ones(1, dtype=bool), np.zeros(1)))
            reached = states.index(tuple(chain.input_ids.tolist()))
            matrix[row, reached] += weights[ids == token].sum() / weights.sum()
    return matrix


def stationary(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eig(matrix.T)
    vector = np.real(vectors[:, np.argmin(np.abs(values - 1))])
    return vector / vector.sum()


def test_random_scan_of_incompatible_conditionals_exactly():
    """X1 at position 0, X2 at 1: every state [X1, X2] in order."""
    logits_of = tabulated([COPY, COIN])
    matrix = (transitions(logits_of, "gibbs", 1, 0) + transitions(logits_of, "gibbs", 1, 1)) / 2
    np.testing.assert_allclose(matrix.sum(axis=1), 1)
    np.testing.assert_allclose(stationary(matrix), [0.3725, 0.1275, 0.1275, 0.3725], atol=1e-7)


def test_sequential_scan_of_incompatible_conditionals_exactly():
    """X2 at position 0, X1 at 1, so that a sweep is X2, then X1."""
    logits_of = tabulated([COIN, COPY])
    sweep = transitions(logits_of, "sequential", 1, 0) @ transitions(logits_of, "sequential", 2, 0)
    np.testing.assert_allclose(stationary(sweep), [0.495, 0.005, 0.005, 0.495], atol=1e-7)


@pytest.mark.parametrize(
    ("settings", "conditionals", "expected"),
    [
        ({"sampler": "gibbs", "steps": 30}, [COPY, COIN], [0.3725, 0.1275, 0.1275, 0.3725]),
        ({"sampler": "sequential", "sweeps": 3}, [COIN, COPY], [0.495, 0.005, 0.005, 0.495]),
        ({"sampler": "parallel", "sweeps": 10}, [COIN, COPY], [0.25, 0.25, 0.25, 0.25]),
    ],
    ids=["gibbs", "sequential", "parallel"],
)
def test_incompatible_conditionals_by_sampling(settings, conditionals, expected):
    num_chains = 1000
    scorer = toy_scorer(tabulated(conditionals), 2)
    starts = [free_start((5, 5))] * num_chains
    chains = generate(scorer, starts, GenerationSettings(**settings, seed=2), num_together=num_chains)
    states = all_states(2, 2)
    counts = np.bincount([states.index(tuple(c[-1].input_ids.tolist())) for c in chains], minlength=4)
    expected = np.array(expected)
    bounds = 4 * np.sqrt(expected * (1 - expected) / num_chains)
    assert (np.abs(counts / num_chains - expected) < bounds).all()


@pytest.mark.parametrize("num_free", [0, 1, 7, 8, 40])
@pytest.mark.parametrize("num_steps", [1, 3, 10, 50])
def test_the_schedule_of_mask_predict(num_free, num_steps):
    counts = [num_masked(num_free, step, num_steps) for step in range(1, num_steps + 1)]
    assert counts[0] == num_free
    assert counts == sorted(counts, reverse=True)
    assert counts == [int(num_free * (num_steps - t) / num_steps + 1e-9) for t in range(num_steps)]


def test_gibbs_draws_positions_uniformly_and_blocks_without_replacement():
    scorer = toy_scorer(hashed(3), 3)
    start = StartState(np.full(9, 5, dtype=np.int32), np.arange(9) % 2 == 1)
    for sampler, size in (("gibbs", 1), ("block", 3)):
        chain = chain_of(scorer, start, GenerationSettings(sampler))
        counts = np.zeros(9)
        for step in range(1, 2001):
            positions = next(Resampler(chain).step(step)).positions
            assert len(positions) == size
            assert (np.diff(positions) > 0).all()
            counts[positions] += 1
        assert not counts[::2].any()
        share = size / 4
        assert (np.abs(counts[1::2] / 2000 - share) < 4 * np.sqrt(share * (1 - share) / 2000)).all()


@pytest.mark.parametrize(
    ("every", "steps", "expected"),
    [(None, 7, [7]), (1, 3, [0, 1, 2, 3]), (3, 7, [0, 3, 6, 7]), (7, 7, [0, 7]), (9, 7, [0, 7])],
)
def test_recorded_steps(every, steps, expected):
    asked = GenerationSettings(steps=steps, record_every=every)
    [states] = generate(toy_scorer(hashed(3), 3), [free_start((5, 6))], asked)
    assert [state.step for state in states] == expected
    assert all(state.accepted is None and state.energy is None for state in states)


@pytest.mark.parametrize("sampler", ["gibbs", "mask_predict", "mh"])
def test_a_chain_without_free_positions_is_its_start(sampler):
    ids = np.array([CLS, 5, 6, SEP], dtype=np.int32)
    asked = GenerationSettings(sampler, record_every=1, energy="norm")
    starts = [StartState(ids, np.zeros(4, dtype=bool)), StartState(ids[:0], np.zeros(0, dtype=bool))]
    logits_of = hashed(4)
    [[state], [empty]] = generate(toy_scorer(logits_of, 4), starts, asked)
    assert (state.step, state.accepted) == (0, None)
    np.testing.assert_array_equal(state.input_ids, ids)
    potentials = [potential(logits_of, tuple(ids.tolist()), i, "norm") for i in (1, 2)]
    assert state.energy == pytest.approx(-sum(potentials), abs=1e-5)
    assert (empty.step, empty.energy, len(empty.input_ids)) == (0, None, 0)


@pytest.mark.parametrize("kind", ["raw", "norm"])
@pytest.mark.parametrize("sampler", ["gibbs", "mh"])
def test_energies_of_recorded_states(sampler, kind):
    logits_of = hashed(4)
    asked = GenerationSettings(sampler, steps=12, record_every=2, energy=kind)
    [states] = generate(toy_scorer(logits_of, 4), [free_start((5, 7, 8, 5, 6))], asked)
    assert len(states) == 7
    for state in states:
        expected = energy(logits_of, tuple(state.input_ids.tolist()), kind)
        assert state.energy == pytest.approx(expected, abs=1e-5)


def test_a_state_that_is_not_filled_has_no_energy():
    asked = GenerationSettings("sequential", steps=3, record_every=1, energy="raw")
    [states] = generate(toy_scorer(hashed(4), 4), [free_start((MASK, MASK, MASK))], asked)
    assert [state.energy is None for state in states] == [True, True, True, False]


def test_special_tokens_count_in_no_energy():
    scorer, asked = toy_scorer(hashed(4), 4), GenerationSettings(steps=1, energy="raw")
    ids = np.array([CLS, 5, 6, SEP], dtype=np.int32)
    is_free = np.array([False, True, False, False])
    list(generate(scorer, [StartState(ids, is_free)], asked))
    asked_of_energy, _ = scorer.engine.batches[-1]
    assert sorted(asked_of_energy.target_positions.tolist()) == [1, 2]
