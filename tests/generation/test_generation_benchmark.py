"""What bench_generation.py compares and refuses; no times."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import MODELS, tiny_scorer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "benchmarks"))

from bench_generation import BASELINE, SEED, Agreement, Found, go_through, goal, measure, table
from generation_contestants import Streams, by_mlmfast, huggingface
from rounds import EXACT

from mlmfast.generation import StartSettings, allowed_tokens, starts

NUM_CHAINS, NUM_STEPS = 5, 6
OURS = "mlmfast native, float32"


@pytest.fixture(scope="module")
def field():
    """Samplers, starts and allowed tokens of a tiny model."""
    scorer = tiny_scorer("bert", engine="native")
    tokenizer = scorer.files.tokenizer
    allowed = allowed_tokens(tokenizer, scorer.files.config.vocab_size)
    begun = list(starts(scorer, [""] * NUM_CHAINS, StartSettings(length=9, init="random"), seed=SEED))
    samplers = {
        name: huggingface(MODELS / "bert", tokenizer.special.mask_id, allowed, SEED, gathered=gathered)
        for name, gathered in ((BASELINE, False), ("gathered", True))
    }
    return {**samplers, OURS: by_mlmfast(scorer, SEED)}, begun, allowed


@pytest.fixture(scope="module")
def reference(field):
    """In float64."""
    mask_id = tiny_scorer("bert", engine="native").files.tokenizer.special.mask_id
    return huggingface(MODELS / "bert", mask_id, field[2], SEED, gathered=False, dtype=torch.float64)


def test_all_make_the_same_chains_from_the_same_conditionals(field, reference) -> None:
    samplers, begun, allowed = field
    found = measure(samplers, reference, begun, allowed, NUM_STEPS, 2)
    for own in found.values():
        assert len(own.seconds) == 2
        assert (own.num_same, own.agreement.num_wrong) == (NUM_CHAINS, 0)
        assert own.agreement.drawn <= own.agreement.anywhere < 2e-5
        assert own.agreement.variation < 1e-5
        assert own.agreement.within(EXACT)
        assert own.agreement.drawn > 0


def test_steps_change_one_place_of_each_chain(field) -> None:
    samplers, begun, _ = field
    states = samplers[OURS].run(begun, NUM_STEPS)
    assert states.shape == (NUM_STEPS + 1, NUM_CHAINS, 11)
    streams = Streams(begun, SEED)
    for before, after in pairwise(states):
        places, uniforms = streams.step()
        assert ((before != after).sum(axis=1) <= 1).all()
        others = before != after
        others[np.arange(NUM_CHAINS), places] = False
        assert not others.any()
        assert ((uniforms >= 0) & (uniforms < 1)).all()


def test_other_conditionals_and_other_tokens_are_seen(field) -> None:
    samplers, begun, allowed = field
    ours, baseline = samplers[OURS], samplers[BASELINE]
    states = ours.run(begun, NUM_STEPS)

    def shifted(*given) -> np.ndarray:
        found = ours.conditionals(*given).copy()
        found[0] += shift
        return found

    for shift in (2e-4, np.nan):
        other = replace(ours, conditionals=shifted)
        found = go_through(other, baseline, states, Streams(begun, SEED), allowed)
        assert found.drawn == pytest.approx(shift, rel=0.1, nan_ok=True)
        assert not found.within(EXACT)
    wrong = states.copy()
    wrong[-1, 2] = (wrong[-1, 2] + 1) % 300
    found = go_through(ours, baseline, wrong, Streams(begun, SEED), allowed)
    assert found.num_wrong == 1
    assert not found.within(EXACT)


def test_differences_by_hand() -> None:
    own, others = np.log([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1]]), np.log([[0.5, 0.2, 0.3], [0.1, 0.7, 0.2]])
    found = Agreement()
    found.add(own, others, np.array([0, 1]))
    assert found.drawn == pytest.approx(np.log(0.8 / 0.7))
    assert found.anywhere == pytest.approx(np.log(2))
    assert found.variation == pytest.approx(0.1)
    before = replace(found)
    found.add(own, own, np.array([2, 2]))
    assert found == before
    for wrong in ({"anywhere": 2e-4}, {"anywhere": np.nan}, {"num_wrong": 1}):
        assert not Agreement(**wrong).within(EXACT)
    assert Agreement(anywhere=9e-5).within(EXACT)


def test_only_those_that_agree_get_a_ratio() -> None:
    found = {
        BASELINE: Found(Agreement(), 8, [2.0, 4.0, 3.0]),
        OURS: Found(Agreement(5e-5, 9e-5, 1e-6), 8, [0.5, 0.7, 0.6]),
        "mlmfast native, bf16x3": Found(Agreement(5e-5, 2e-4), 1, [0.2, 0.2, 0.2]),
    }
    lines, ratios = table(found, dict.fromkeys(found, EXACT), num_chains=8, num_steps=10)
    assert ratios == {BASELINE: 1.0, OURS: pytest.approx(5.0)}
    assert f"| {OURS} | 133 | 0.060 (0.050-0.070) | 5.00 | 5.0e-05 | 9.0e-05 | 1.0e-06 | 8 of 8 |" in lines
    assert "| disagrees |" in lines
    assert goal(ratios) == f"- {OURS} against {BASELINE}: 5.00x; goal 4x: met"
    assert "missed" in goal({BASELINE: 1.0, OURS: 3.9})
    assert "not judged" in goal({BASELINE: 1.0, "mlmfast native, bfloat16": 9.0})


def test_conditionals_are_log_probabilities(field) -> None:
    samplers, begun, _ = field
    for sampler in samplers.values():
        found = sampler.conditionals(np.stack([s.input_ids for s in begun]), np.full(NUM_CHAINS, 3))
        assert np.exp(found).sum(axis=1) == pytest.approx(np.ones(NUM_CHAINS))
