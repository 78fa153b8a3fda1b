"""Redesigned proteins: an antibody model with real weights, and a tiny ESM-2."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_models import DATA, MODELS, tiny_scorer

import mlmfast
from mlmfast.generation import GenerationSettings, StartSettings, allowed_tokens, generate, starts, text_of

HEAVY = (DATA / "proteins" / "heavy_chain.fasta").read_text().split()[1]
FRAMEWORK = "5-20,36-48"
CDRS = "26-33,51-58,97-103"


@pytest.fixture(scope="module")
def antibodies():
    with mlmfast.load(MODELS / "sapiens-vh", precision="float32", workers=1) as scorer:
        yield scorer


def designs(scorer, texts: list[str], start: StartSettings, allow: tuple[str, ...] = (), **how) -> list[str]:
    settings = GenerationSettings(**how)
    tokenizer = scorer.files.tokenizer
    allowed = allowed_tokens(tokenizer, scorer.files.config.vocab_size, allow)
    begun = starts(scorer, texts, start, allowed=allowed, seed=settings.seed)
    return [text_of(c[-1], tokenizer) for c in generate(scorer, begun, settings, allowed=allowed)]


def changed(design: str, sequence: str = HEAVY) -> set[int]:
    """Residues counted from 1."""
    assert len(design) == len(sequence)
    return {i for i, (a, b) in enumerate(zip(design, sequence, strict=True), 1) if a != b}


def test_a_masked_framework_is_recovered(antibodies) -> None:
    """Human frameworks are conserved: a model that has seen antibodies puts back what was masked."""
    (design,) = designs(
        antibodies, [HEAVY], StartSettings(positions=FRAMEWORK), steps=29, greedy=True, sampler="sequential"
    )
    assert changed(design) <= {*range(5, 21), *range(36, 49)}
    assert len(changed(design)) <= 3


@pytest.mark.parametrize(
    ("sampler", "init", "num_steps"), [("sequential", "text", 46), ("gibbs", "text", 46), ("mh", "mask", 4)]
)
def test_chosen_positions_are_redesigned_in_order_or_at_random(
    antibodies, sampler: str, init: str, num_steps: int
) -> None:
    start = StartSettings(positions=CDRS, init=init)
    found = designs(antibodies, [HEAVY] * 2, start, sampler=sampler, steps=num_steps, seed=1, energy="norm")
    for design in found:
        assert changed(design) <= {*range(26, 34), *range(51, 59), *range(97, 104)}
        assert changed(design)
        assert set(design) <= set("ACDEFGHIKLMNPQRSTVWY")
    assert len(set(found)) == 2


def test_a_leader_is_kept_and_the_rest_generated(antibodies) -> None:
    found = designs(antibodies, [HEAVY[:10]] * 2, StartSettings(length="100-110"), sweeps=1, temperature=0.5)
    assert all(design.startswith(HEAVY[:10]) and 100 <= len(design) <= 110 for design in found)
    kept = designs(antibodies, [HEAVY], StartSettings(leader=30, init="mask"), sampler="parallel", steps=1)
    assert kept[0].startswith(HEAVY[:30])
    assert changed(kept[0])


def test_an_alphabet_of_a_few_letters(antibodies) -> None:
    (design,) = designs(antibodies, [HEAVY], StartSettings(positions="50-60"), ("AST", "G"), sweeps=1)
    assert set(design[49:60]) <= set("ASTG")
    assert changed(design) <= set(range(50, 61))


def test_mean_log_likelihood_rises_as_a_random_sequence_is_sampled(antibodies) -> None:
    start = StartSettings(length=60, init="random")
    tokenizer = antibodies.files.tokenizer
    allowed = allowed_tokens(tokenizer, antibodies.files.config.vocab_size)
    begun = starts(antibodies, [""] * 4, start, allowed=allowed)
    settings = GenerationSettings(sweeps=2, record_every=120, temperature=0.7)
    chains = list(generate(antibodies, begun, settings, allowed=allowed))
    before, after = (
        antibodies.score([text_of(states[place], tokenizer) for states in chains]) for place in (0, -1)
    )
    means = [np.mean([s.score / s.num_tokens for s in scores]) for scores in (before, after)]
    assert means[1] > means[0] + 1


@pytest.mark.parametrize("sampler", ["gibbs", "sequential", "parallel", "block", "mask_predict", "mh"])
def test_every_sampler_on_a_tiny_esm(sampler: str) -> None:
    scorer = tiny_scorer("esm2", engine="native")
    found = designs(scorer, ["MKTAY<mask><mask>IAKQ", "MKX<mask>"], StartSettings(), sampler=sampler, steps=4)
    assert [len(design) for design in found] == [11, 4]
    assert changed(found[0], "MKTAY??IAKQ") == {6, 7}
    assert changed(found[1], "MKX?") == {4}
    assert set("".join(found)) <= set("ACDEFGHIKLMNPQRSTVWYX")
