"""Scores against the float64 Hugging Face loop: every architecture, every masking, every length."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
from reference import reference_log_probs, reference_tokenize
from tiny_models import MODELS, read_lines, tiny_scorer

import mlmfast
from mlmfast.errors import TextTooLongError

TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1}
BFLOAT16_MEAN = 0.01
MASKED = (
    "bert",
    "roberta",
    "distilbert",
    "albert",
    "electra",
    "xlm-roberta",
    "camembert",
    "mpnet",
    "deberta-v2",
    "deberta-v2-legacy",
    "modernbert",
    "esm2",
    "sapiens-vh",
    "bert-legacy-names",
    "bert-sharded",
)
CAUSAL = ("gpt2", "llama")
PROTEIN = ("esm2", "sapiens-vh")
MASKINGS = ("original", "word_l2r", "whole_word", "stride:3", "none")

ENGLISH = [
    "We have met with fellow-citizens who, unlike others, never read it.",
    "A",
    "",
    "The [MASK] of </s> the <mask> people",
    "caf\u00e9 \u4eba\u6c11 na\u00efve \U0001f600",
    "The people of the nation shall be governed by the principles of union and liberty and of peace.",
]
PROTEINS = ["QVHLQESGPGLVKPSETLS", "M", "", "MKTAYIAXBZUO", "GQWRTYQVHLQESGPGLVKPSETLSLTCAVSGDSIKNNYWSWIRQP"]


def texts_for(name: str) -> list[str]:
    return PROTEINS if name in PROTEIN else ENGLISH


@cache
def reference_scores(name: str, text: str, masking: str, *, score_eos: bool = False) -> list[float]:
    """Log-probabilities of the scored tokens of a text that fits the model."""
    folder = MODELS / name
    ids, word_ids = reference_tokenize(folder, text)
    if masking == "causal":
        config = json.loads((folder / "tokenizer_config.json").read_text())
        bos, eos = (
            tiny_scorer(name).files.tokenizer.vocabulary.index(config[k]) for k in ("bos_token", "eos_token")
        )
        if not ids or ids[0] != bos or word_ids[0] is not None:
            ids, word_ids = [bos, *ids], [None, *word_ids]
        if score_eos:
            ids, word_ids = [*ids, eos], [*word_ids, None]
    if all(word is None for word in word_ids):
        return []
    log_probs = reference_log_probs(folder, ids, word_ids, masking, score_eos)
    return [value for value in log_probs if not np.isnan(value)]


def assert_agrees(result: mlmfast.TextScore, expected: list[float], tolerance: float) -> None:
    found = [token.log_prob for token in result.tokens]
    assert len(found) == len(expected) == result.num_tokens
    if not expected:
        assert result.score is None
        return
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
    assert result.score == pytest.approx(sum(expected), abs=tolerance * len(expected))


@pytest.mark.parametrize("masking", MASKINGS)
@pytest.mark.parametrize("name", MASKED)
def test_masked_models_agree(name: str, masking: str) -> None:
    texts = texts_for(name)
    if masking in ("word_l2r", "whole_word") and name not in PROTEIN:
        # A word of an unspaced script is refused where the tokenizer does not split it.
        texts = [t for t in texts if "\u4eba" not in t]
    for text, result in zip(texts, tiny_scorer(name).score(texts, masking), strict=True):
        assert_agrees(result, reference_scores(name, text, masking), TOLERANCE["float32"])


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_models_agree(name: str) -> None:
    for text, result in zip(ENGLISH, tiny_scorer(name).score(ENGLISH, "causal"), strict=True):
        assert_agrees(result, reference_scores(name, text, "causal"), TOLERANCE["float32"])


@pytest.mark.parametrize(("name", "masking"), [("bert", "original"), ("roberta", "none"), ("gpt2", "causal")])
def test_final_token_is_scored_only_on_request(name: str, masking: str) -> None:
    texts = ENGLISH[:2]
    for text, result in zip(texts, tiny_scorer(name).score(texts, masking, score_eos=True), strict=True):
        assert_agrees(result, reference_scores(name, text, masking, score_eos=True), TOLERANCE["float32"])
        assert result.tokens[-1].start == result.tokens[-1].end == len(text)


def content_of_length(name: str, num_tokens: int) -> str:
    """A text of exactly num_tokens tokens, special tokens included."""
    protein = name in PROTEIN
    piece = "ACDEFGHIKLMNPQRSTVWY" if protein else " the of and to in is that it"
    encode = tiny_scorer(name).files.tokenizer.encode
    text = "" if protein else "the"
    while True:
        for part in piece if protein else piece.split(" ")[1:]:
            longer = text + part if protein else f"{text} {part}"
            length = int(encode([longer], causal=name in CAUSAL).lengths[0])
            if length > num_tokens:
                # Finish with single characters where words are too long for what is left.
                longer = text + " ."
                length = int(encode([longer], causal=name in CAUSAL).lengths[0])
            text = longer
            if length == num_tokens:
                return text
            assert length < num_tokens


@pytest.mark.parametrize("name", [*MASKED[:13], *CAUSAL])
def test_position_limit_and_one_over(name: str) -> None:
    scorer = tiny_scorer(name)
    causal = name in CAUSAL
    masking = "causal" if causal else "original"
    # The last token of a causal text is only predicted, so it takes no position.
    limit = scorer.engine.max_length + causal
    text = content_of_length(name, limit)
    result = scorer.score([text], masking)[0]
    assert_agrees(result, reference_scores(name, text, masking), TOLERANCE["float32"])
    over = content_of_length(name, limit + 1)
    with pytest.raises(
        TextTooLongError, match=rf"texts\[1\]: {limit + 1} tokens, but the model takes {limit}"
    ):
        scorer.score([text, over], masking)


@pytest.mark.parametrize("name", [*MASKED[:13], *CAUSAL])
def test_bfloat16_runs_every_architecture(name: str) -> None:
    """Random weights are far more sensitive than trained ones, so only the order of the error is held."""
    masking = "causal" if name in CAUSAL else "original"
    texts = texts_for(name)
    exact = tiny_scorer(name).score(texts, masking)
    rounded = tiny_scorer(name, "bfloat16").score(texts, masking)
    errors = [
        abs(a.log_prob - b.log_prob)
        for first, second in zip(exact, rounded, strict=True)
        for a, b in zip(first.tokens, second.tokens, strict=True)
    ]
    assert 0 < float(np.mean(errors)) < 0.5


def test_bfloat16_error_on_real_text() -> None:
    texts = read_lines("inaugural.txt")[:12]
    found = []
    for precision in ("float32", "bfloat16"):
        with mlmfast.load(engine="torch", precision=precision, workers=1) as scorer:
            found.append(np.concatenate([[t.log_prob for t in r.tokens] for r in scorer.score(texts)]))
    errors = np.abs(found[0] - found[1])
    assert 0 < errors.max() < TOLERANCE["bfloat16"]
    assert errors.mean() < BFLOAT16_MEAN


def test_modernbert_texts_exceed_its_local_window() -> None:
    scorer = tiny_scorer("modernbert")
    assert scorer.engine.max_length > 2 * scorer.files.config.values["local_attention"]


def test_sapiens_golden_numbers() -> None:
    golden = json.loads((MODELS / "sapiens-vh" / "golden_pll.json").read_text())
    sequences = [entry for entry in golden if entry["model"] == "sapiens_vh"]
    assert sequences
    results = tiny_scorer("sapiens-vh").score([entry["seq"] for entry in sequences])
    for entry, result in zip(sequences, results, strict=True):
        assert_agrees(result, entry["per_token"], TOLERANCE["float32"])
        assert result.pll == pytest.approx(entry["pll"], abs=1e-3)


def test_embedded_model_agrees_on_real_text() -> None:
    from mlmfast.models.source import EMBEDDED_FOLDER

    texts = read_lines("inaugural.txt")[:4]
    with mlmfast.load(engine="torch", workers=1) as scorer:
        results = scorer.score(texts)
    for text, result in zip(texts, results, strict=True):
        log_probs = reference_log_probs(
            EMBEDDED_FOLDER, *reference_tokenize(EMBEDDED_FOLDER, text), "original"
        )
        assert_agrees(result, [v for v in log_probs if not np.isnan(v)], TOLERANCE["float32"])
