"""A score does not depend on what it is computed beside: order, neighbours, budget, workers."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_models import MODELS, read_lines, tiny_scorer

import mlmfast

TOLERANCE = 5e-5
NAMES = ("bert", "roberta", "deberta-v2", "modernbert", "esm2", "gpt2")


def texts_for(name: str) -> list[str]:
    if name == "esm2":
        rng = np.random.default_rng(3)
        return ["".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), n)) for n in rng.integers(1, 60, 24)]
    limit = tiny_scorer(name).engine.max_length
    lengths = tiny_scorer(name).files.tokenizer.encode(read_lines("inaugural.txt")).lengths
    return [t for t, n in zip(read_lines("inaugural.txt"), lengths, strict=True) if n <= limit - 2][:24]


def log_probs(scorer: mlmfast.Scorer, texts: list[str], name: str) -> list[np.ndarray]:
    results = scorer.score(texts, "causal" if name == "gpt2" else "original")
    return [np.array([t.log_prob for t in r.tokens]) for r in results]


@pytest.mark.parametrize("name", NAMES)
def test_alone_shuffled_and_under_other_budgets(name: str) -> None:
    texts = texts_for(name)
    assert len(texts) >= 12
    together = log_probs(tiny_scorer(name), texts, name)
    alone = [log_probs(tiny_scorer(name), [text], name)[0] for text in texts]
    order = np.random.default_rng(5).permutation(len(texts))
    shuffled = log_probs(tiny_scorer(name), [texts[i] for i in order], name)
    others = [alone, [shuffled[i] for i in np.argsort(order)]]
    for budget, workers in ((1, 1), (97, 2), (100_000, 3)):
        with mlmfast.load(MODELS / name, engine="torch", max_batch_tokens=budget, workers=workers) as scorer:
            others.append(log_probs(scorer, texts, name))
    for other in others:
        for first, second in zip(together, other, strict=True):
            np.testing.assert_allclose(second, first, rtol=0, atol=TOLERANCE)


def test_the_number_of_workers_changes_no_bit() -> None:
    texts = texts_for("bert")
    found = []
    for workers in (1, 2, 4):
        with mlmfast.load(MODELS / "bert", engine="torch", workers=workers) as scorer:
            found.append([r.score for r in scorer.score(texts)])
    assert found[0] == found[1] == found[2]
