"""Chains of real models: independent of what runs beside them, reproducible, clean."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tiny_models import MODELS, read_lines, tiny_scorer

import mlmfast
from mlmfast.errors import SettingsError
from mlmfast.generation import ChainState, GenerationSettings, StartState, generate
from mlmfast.generation import rows as rows_module

SAMPLERS = [
    {"sampler": "gibbs", "steps": 6, "top_k": 50, "burn_in": 2},
    {"sampler": "sequential", "steps": 5, "top_p": 0.9},
    {"sampler": "parallel", "steps": 2, "mask_sampled": False},
    {"sampler": "block", "steps": 3, "temperature": 0.7},
    {"sampler": "mask_predict", "steps": 3},
    {"sampler": "mh", "steps": 4, "energy": "norm"},
    {"sampler": "mh", "steps": 2, "energy": "raw", "top_k": 100, "temperature": 1.3},
]
NAMES = ["bert", "roberta", "esm2", "modernbert", "albert", "xlm-roberta"]


def starts_of(scorer: mlmfast.Scorer, num_starts: int, longest: int) -> list[StartState]:
    """Texts of 1 to `longest` tokens, about a third masked and a quarter fixed."""
    rng = np.random.default_rng(4)
    tokenizer = scorer.files.tokenizer
    text = "ACDEFGHIKLMNPQRSTVWY" * 4 if tokenizer.protein else " ".join(read_lines("inaugural.txt")[:4])
    whole = tokenizer.encode([text]).input_ids
    content = whole[~np.isin(whole, [tokenizer.special.unknown_id, *tokenizer.special.all_ids])]
    starts = []
    for length in rng.integers(1, longest + 1, num_starts):
        first = rng.integers(len(content) - length)
        ids = np.concatenate([whole[:1], content[first : first + length], whole[-1:]]).astype(np.int32)
        is_free = rng.random(len(ids)) < 0.75
        is_free[[0, -1]] = False
        ids[is_free & (rng.random(len(ids)) < 0.4)] = tokenizer.special.mask_id
        starts.append(StartState(ids, is_free))
    return starts


def bits(chains: list[list[ChainState]]) -> list[list[tuple]]:
    return [[(s.chain, s.step, s.input_ids.tobytes(), s.energy, s.accepted) for s in c] for c in chains]


@cache
def embedded(workers: int = 1) -> mlmfast.Scorer:
    return mlmfast.load(workers=workers)


@pytest.mark.parametrize("settings", SAMPLERS, ids=str)
def test_a_chain_alone_is_the_same_among_64(settings):
    """The embedded model on the native engine, to the bit."""
    scorer = embedded()
    starts = starts_of(scorer, 64, 9)
    asked = GenerationSettings(**settings, record_every=2, seed=3)
    together = bits(list(generate(scorer, starts, asked)))
    assert [states[0][0] for states in together] == list(range(64))
    for number in (0, 17, 63):
        assert bits(list(generate(scorer, starts[number : number + 1], asked, first_chain=number))) == [
            together[number]
        ]


@pytest.mark.parametrize("settings", SAMPLERS, ids=str)
def test_workers_batches_and_groups_change_no_bit(settings, monkeypatch):
    starts = starts_of(tiny_scorer("bert", engine="native"), 11, 30)
    asked = GenerationSettings(**settings, record_every=1, seed=3)
    found = []
    for options, together in (
        ({"workers": 1}, 64),
        ({"workers": 3}, 4),
        ({"workers": 2, "max_batch_tokens": 1}, 64),
        ({"workers": 1, "max_batch_tokens": 100_000}, 1),
    ):
        with mlmfast.load(MODELS / "bert", engine="native", precision="float32", **options) as scorer:
            found.append(bits(list(generate(scorer, starts, asked, num_together=together))))
    monkeypatch.setattr(rows_module, "MAX_LOGITS", 1000)
    found.append(bits(list(generate(tiny_scorer("bert", engine="native"), starts, asked))))
    assert all(other == found[0] for other in found)


def test_seeds_and_chain_numbers_give_other_chains():
    scorer = tiny_scorer("bert", engine="native")
    starts = starts_of(scorer, 2, 30)[:1] * 3
    first, other_chain, _ = bits(list(generate(scorer, starts, GenerationSettings(seed=1))))
    again = bits(list(generate(scorer, starts, GenerationSettings(seed=1))))
    [other_seed, *_] = bits(list(generate(scorer, starts, GenerationSettings(seed=2))))
    assert again[0] == first
    assert len({first[-1][2], other_chain[-1][2], other_seed[-1][2]}) == 3


@pytest.mark.parametrize("engine", ["native", "torch"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("settings", SAMPLERS, ids=lambda settings: settings["sampler"])
def test_fixed_tokens_stay_and_none_is_special(settings, name, engine):
    scorer = tiny_scorer(name, engine=engine)
    special = scorer.files.tokenizer.special
    starts = starts_of(scorer, 6, 20)
    asked = GenerationSettings(**settings)
    everything = np.ones(scorer.files.config.vocab_size, dtype=bool)
    for start, states in zip(starts, generate(scorer, starts, asked, allowed=everything), strict=True):
        ids = states[-1].input_ids
        np.testing.assert_array_equal(ids[~start.is_free], start.input_ids[~start.is_free])
        assert not np.isin(ids[start.is_free], sorted(special.all_ids)).any()


@pytest.mark.parametrize("name", ["bert", "modernbert"])
@pytest.mark.parametrize("settings", SAMPLERS, ids=lambda settings: settings["sampler"])
def test_the_packed_engine_draws_as_the_native_one(settings, name):
    """One step from the same starts. No uniform number falls within their rounding here."""
    asked = GenerationSettings(**{**settings, "steps": 1, "burn_in": 0}, record_every=1, seed=3)
    found = {}
    for engine in ("native", "packed"):
        scorer = tiny_scorer(name, engine=engine)
        chains = generate(scorer, starts_of(scorer, 6, 20), asked)
        found[engine] = [states[0].input_ids.tolist() + states[-1].input_ids.tolist() for states in chains]
    assert found["native"] == found["packed"]


def test_only_allowed_tokens_are_sampled():
    scorer = tiny_scorer("sapiens-vh", engine="native")
    vocabulary = scorer.files.tokenizer.vocabulary
    allowed = np.isin(np.arange(scorer.files.config.vocab_size), [vocabulary.index(c) for c in "AGS"])
    start = starts_of(scorer, 8, 30)[-1]
    masked = StartState(
        np.where(start.is_free, scorer.files.tokenizer.special.mask_id, start.input_ids).astype(np.int32),
        start.is_free,
    )
    [[state]] = generate(scorer, [masked], GenerationSettings(), allowed=allowed)
    assert allowed[state.input_ids[start.is_free]].all()


@pytest.mark.parametrize("engine", ["native", "torch"])
@pytest.mark.parametrize("kind", ["raw", "norm"])
def test_energies_are_the_scorers(kind, engine):
    """A protein's tokens are its letters, so that its text has the same tokens."""
    scorer = tiny_scorer("esm2", engine=engine)
    vocabulary = scorer.files.tokenizer.vocabulary
    allowed = np.isin(np.arange(len(vocabulary)), [vocabulary.index(c) for c in "ACDEFGHIKLMNPQRSTVWY"])
    starts = starts_of(scorer, 5, 20)
    for sampler in ("gibbs", "mh"):
        asked = GenerationSettings(sampler, sweeps=2, energy=kind)
        chains = list(generate(scorer, starts, asked, allowed=allowed))
        texts = ["".join(vocabulary[i] for i in c[-1].input_ids[1:-1]) for c in chains]
        energies = [c[-1].energy for c in chains]
        np.testing.assert_allclose(energies, scorer.energy(texts, kind), rtol=0, atol=2e-4)


def test_segments_have_their_token_types():
    scorer = tiny_scorer("bert", engine="native")
    start = starts_of(scorer, 3, 20)[-1]
    types = (np.arange(len(start.input_ids)) >= len(start.input_ids) // 2).astype(np.int32)
    second = StartState(start.input_ids, start.is_free, types)
    asked = GenerationSettings("mh", energy="norm", sweeps=1)

    def energy_of(starts: list[StartState], index: int) -> float | None:
        return list(generate(scorer, starts, asked, first_chain=7 - index))[index][-1].energy

    alone = energy_of([second], 0)
    assert alone == energy_of([start, second], 1)
    assert alone != energy_of([start], 0)
    zeros = StartState(start.input_ids, start.is_free, np.zeros_like(types))
    assert energy_of([zeros], 0) == energy_of([start], 0)


def test_a_student_is_refused():
    with mlmfast.load("mlmfast-mini-en-student") as student, pytest.raises(SettingsError, match="student"):
        generate(student, [], GenerationSettings())
