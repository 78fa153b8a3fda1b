"""Settings and starts that do not fit; steps of a chain."""

from __future__ import annotations

import numpy as np
import pytest
from generation_toys import CLS, FIRST, MASK, NO_TOKEN, UNKNOWN, free_start, hashed, toy_scorer
from tiny_models import tiny_scorer

from mlmfast.errors import InputError, SettingsError, TextTooLongError
from mlmfast.generation import GenerationSettings, StartState, generate
from mlmfast.generation.run import sampled_tokens


@pytest.mark.parametrize(
    ("settings", "num_free", "expected"),
    [
        ({}, 7, 70),
        ({"sweeps": 2}, 7, 14),
        ({"steps": 5}, 7, 5),
        ({"sampler": "sequential", "sweeps": 3}, 4, 12),
        ({"sampler": "mh", "sweeps": 1}, 4, 4),
        ({"sampler": "parallel"}, 4, 10),
        ({"sampler": "parallel", "sweeps": 3}, 4, 3),
        ({"sampler": "block", "sweeps": 2}, 6, 4),
        ({"sampler": "block", "sweeps": 2}, 7, 6),
        ({"sampler": "block", "sweeps": 1, "block_size": 9}, 7, 1),
        ({"sampler": "mask_predict"}, 7, 10),
        ({"sampler": "mask_predict", "steps": 4}, 7, 4),
        ({"sampler": "mask_predict", "steps": 4}, 0, 0),
        ({}, 0, 0),
    ],
)
def test_number_of_steps(settings, num_free, expected):
    assert GenerationSettings(**settings).num_steps(num_free) == expected


def test_defaults_that_depend_on_the_sampler():
    assert GenerationSettings("mask_predict").greedy is True
    assert GenerationSettings("mask_predict", greedy=False).greedy is False
    assert GenerationSettings("gibbs").greedy is False
    assert GenerationSettings("mh").energy == "raw"
    assert GenerationSettings("mh", energy="norm").energy == "norm"
    assert GenerationSettings("gibbs").energy is None
    assert GenerationSettings("block").block_size == 3
    assert GenerationSettings("gibbs").block_size is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sampler": "metropolis"}, "unknown sampler 'metropolis'; expected one of gibbs, sequential"),
        ({"energy": "log"}, "unknown energy 'log'; expected one of raw, norm"),
        ({"sweeps": 2, "steps": 3}, "leave one out"),
        ({"sampler": "mask_predict", "sweeps": 2}, "give steps"),
        ({"steps": 0}, "steps is 0; expected a whole number"),
        ({"sweeps": True}, "sweeps is True"),
        ({"sampler": "block", "block_size": 0}, "block_size is 0"),
        ({"record_every": 0}, "record_every is 0"),
        ({"burn_in": -1}, "burn_in is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"temperature": 0}, "temperature is 0; expected a number above 0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"temperature": 10**400}, "expected a number above 0"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"temperature": None}, "temperature is None"),
        ({"temperature": True}, "temperature is True"),
        ({"top_p": "most"}, "top_p is 'most'"),
        ({"top_p": True}, "top_p is True"),
        ({"top_p": float("nan")}, "top_p is nan"),
        ({"mask_sampled": None}, "mask_sampled is None; expected True or False"),
        ({"greedy": "yes"}, "greedy is 'yes'; expected True or False"),
        ({"block_size": 3}, "block_size 3 is of block alone, not gibbs"),
        ({"top_k": 0}, "top_k is 0"),
        ({"top_p": 0.0}, "top_p is 0.0; expected above 0, to 1"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"sampler": "mh", "mask_sampled": False}, "mh draws at masked positions alone"),
        ({"sampler": "mask_predict", "mask_sampled": False}, "mask_predict draws at masked"),
        ({"sampler": "mh", "greedy": True}, "mh needs proposals that are drawn"),
        ({"greedy": True, "top_k": 3}, "greedy takes the most probable"),
        ({"sampler": "mask_predict", "top_p": 0.5}, "or say greedy=False"),
        ({"burn_in": 3}, "nothing begins after it"),
        ({"burn_in": 6, "steps": 5, "top_k": 3}, "only 5 steps"),
        ({"sampler": "parallel", "burn_in": 6, "sweeps": 5, "top_k": 3}, "only 5 steps"),
        ({"sampler": "mask_predict", "burn_in": 11}, "only 10 steps"),
    ],
)
def test_settings_that_do_not_fit(settings, message):
    with pytest.raises(SettingsError, match=message):
        GenerationSettings(**settings)


IDS, FREE = np.array([CLS, 6, MASK], dtype=np.int32), np.array([False, False, True])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((IDS.astype(np.int64), FREE), r"expected int32\[n\]"),
        ((IDS.tolist(), FREE), r"input_ids of a start is \[0, 6, 2\]"),
        ((IDS, FREE.astype(np.int8)), r"expected bool\[n\]"),
        ((IDS, FREE[:2]), "is_free of a start has 2 values for 3 tokens"),
        ((IDS[None], FREE), r"expected int32\[n\]"),
        ((IDS, FREE, IDS[:1]), "token_type_ids of a start has 1 values for 3 tokens"),
    ],
)
def test_starts_of_other_arrays(columns, message):
    with pytest.raises(InputError, match=message):
        StartState(*columns)


@pytest.mark.parametrize(
    ("ids", "free", "message"),
    [
        ([CLS, 6, 6], [True, True, True], "chain 3: position 0 holds a special token but is free"),
        ([CLS, 6, MASK], [False, True, False], "chain 3: position 2 holds the mask token but is not free"),
        ([CLS, 6, 8], [False, True, False], "chain 3: token ids from 0 to 8, but the model has 0 to 7"),
        ([-1, 6, 7], [False, True, False], "chain 3: token ids from -1 to 7"),
    ],
)
def test_starts_that_the_model_cannot_take(ids, free, message):
    scorer = toy_scorer(hashed(3), 3)
    bad = StartState(np.array(ids, dtype=np.int32), np.array(free))
    results = generate(scorer, [free_start([6, 7]), bad], GenerationSettings(steps=1), first_chain=2)
    assert next(results)[0].chain == 2
    with pytest.raises(InputError, match=message):
        next(results)


def test_texts_are_no_starts():
    with pytest.raises(InputError, match=r"chain 4: 'the \[MASK\]' is no StartState; .*starts` makes them"):
        list(generate(toy_scorer(hashed(3), 3), ["the [MASK]"], GenerationSettings(), first_chain=4))


def test_a_start_that_is_too_long():
    scorer = toy_scorer(hashed(3), 3)
    assert len(list(generate(scorer, [free_start([6] * 64)], GenerationSettings(steps=1)))) == 1
    with pytest.raises(TextTooLongError, match="chain 0: 65 tokens, but the model takes 64"):
        list(generate(scorer, [free_start([6] * 65)], GenerationSettings(steps=1)))


def test_tokens_that_can_be_sampled():
    scorer = toy_scorer(hashed(3), 3)
    assert np.flatnonzero(sampled_tokens(scorer, None)).tolist() == [FIRST, FIRST + 1, FIRST + 2]
    everything = np.ones(8, dtype=bool)
    assert np.flatnonzero(sampled_tokens(scorer, everything)).tolist() == [UNKNOWN, 5, 6, 7]
    assert NO_TOKEN not in np.flatnonzero(sampled_tokens(scorer, everything))
    with pytest.raises(SettingsError, match="holds no token that can be sampled"):
        generate(scorer, [], GenerationSettings(), allowed=np.arange(8) < UNKNOWN)
    for wrong in (np.ones(7, dtype=bool), np.ones(8, dtype=np.int8), [True] * 8):
        with pytest.raises(SettingsError, match=r"expected bool\[8\]"):
            generate(scorer, [], GenerationSettings(), allowed=wrong)


@pytest.mark.parametrize("name", ["gpt2", "bert-decoder"])
def test_a_causal_model_is_refused(name):
    with pytest.raises(SettingsError, match="generation needs a masked one"):
        generate(tiny_scorer(name), [], GenerationSettings())


def test_numbers_of_chains():
    scorer = toy_scorer(hashed(3), 3)
    for options, message in (({"first_chain": -1}, "first_chain is -1"), ({"num_together": 0}, "is 0")):
        with pytest.raises(SettingsError, match=message):
            generate(scorer, [], GenerationSettings(), **options)
    assert list(generate(scorer, [], GenerationSettings())) == []
