"""The likelihood of samples is the plain sum over their tokens."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import mlmfast
from mlmfast.evaluation import likelihood

DATA = Path(__file__).parent.parent / "data"
TEXTS = [*(DATA / "text" / "inaugural.txt").read_text("utf-8").splitlines()[:4], ""]


@pytest.mark.parametrize(("model", "masking"), [("bert", "original"), ("bert", "none"), ("gpt2", "causal")])
def test_sums_over_tokens(model, masking):
    counted = []
    with mlmfast.load(DATA / "models" / model, workers=1) as scorer:
        found = likelihood(scorer, TEXTS, masking, scored=counted.append)
        log_probs = [[token.log_prob for token in s.tokens] for s in scorer.score(TEXTS, masking)]
    total, num_tokens = sum(map(sum, log_probs)), sum(map(len, log_probs))
    num_words = sum(len(text.split()) for text in TEXTS)
    assert counted == [len(text) for text in log_probs]
    assert (found.num_scored, found.num_empty, found.num_skipped) == (4, 1, 0)
    assert found.num_tokens == num_tokens
    assert found.score == pytest.approx(total, rel=1e-6)
    assert found.mean_score == pytest.approx(total / 4, rel=1e-6)
    assert found.pppl == pytest.approx(math.exp(-total / num_tokens), rel=1e-5)
    assert found.word_pppl == pytest.approx(math.exp(-total / num_words), rel=1e-5)
    assert found.is_pll == (masking == "original")


def test_samples_that_cannot_be_scored():
    with mlmfast.load(DATA / "models" / "bert", workers=1) as scorer:
        found = likelihood(scorer, ["word " * 100], on_error="skip")
        assert (found.num_skipped, found.num_scored, found.mean_score, found.pppl) == (1, 0, None, None)
        with pytest.raises(mlmfast.TextTooLongError, match=r"texts\[1\]"):
            likelihood(scorer, [TEXTS[0], "word " * 100])
