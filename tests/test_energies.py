"""Energies against a plain loop over Hugging Face's logits, and their estimates from some of the tokens."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hash_engine import HashEngine, files_of, scorer_of, value_of
from reference import load_model, load_tokenizer, reference_tokenize
from student_models import make_student
from tiny_models import MODELS, tiny_scorer

import mlmfast
from mlmfast import window_groups
from mlmfast.engines import Outputs
from mlmfast.errors import InputError, SettingsError, TextTooLongError
from mlmfast.scorer import Scorer
from mlmfast.types import RowBatch, TargetOutputs

TEXTS = {
    "bert": ["We the people of the United States", "people", "liberty and union"],
    "roberta": ["We the people of the United States", "people"],
    "albert": ["We the people of the United States", "people"],
    "modernbert": ["We the people of the United States", "people"],
    "esm2": ["MKTAYIAKQR", "G"],
    "deberta-v2": ["We the people of the United States", "people"],
}
CASES = [(name, "torch") for name in TEXTS] + [(name, "native") for name in TEXTS if name != "deberta-v2"]
TOLERANCE = 1e-4
"""Per token, as the tiny models' bound of float32."""
LONG = "We the people of the United States and the union of liberty"


@cache
def plain_terms(name: str, text: str) -> tuple[list[float], list[float]]:
    """The logit and the log-probability of each token of a text with that token alone masked."""
    ids, words = reference_tokenize(MODELS / name, text)
    mask_id = load_tokenizer(MODELS / name).mask_token_id
    logits, log_probs = [], []
    for position, (token, word) in enumerate(zip(ids, words, strict=True)):
        if word is None:
            continue
        row = torch.tensor([[mask_id if i == position else other for i, other in enumerate(ids)]])
        with torch.no_grad():
            found = load_model(MODELS / name)(row, attention_mask=torch.ones_like(row)).logits[0, position]
        logits.append(float(found[token]))
        log_probs.append(float(torch.log_softmax(found, -1)[token]))
    return logits, log_probs


@pytest.mark.parametrize("kind", ["raw", "norm"])
@pytest.mark.parametrize(("name", "engine"), CASES)
def test_energies_are_the_sums_of_a_plain_loop(name: str, engine: str, kind: str) -> None:
    found = tiny_scorer(name, engine=engine).energy(TEXTS[name], kind)
    for text, energy in zip(TEXTS[name], found, strict=True):
        terms = plain_terms(name, text)[0 if kind == "raw" else 1]
        assert energy == pytest.approx(-math.fsum(terms), rel=0, abs=TOLERANCE * len(terms))


def test_the_default_is_raw_and_norm_is_minus_the_pll() -> None:
    scorer = tiny_scorer("bert", engine="native")
    texts = TEXTS["bert"]
    assert scorer.energy(texts) == scorer.energy(texts, "raw") != scorer.energy(texts, "norm")
    plls = [result.pll for result in scorer.score(texts)]
    assert [-energy for energy in scorer.energy(texts, "norm") if energy is not None] == plls


def hash_terms(text: str, kind: str = "raw") -> list[float]:
    """What the hashing engine says of each token, masked alone."""
    tokenizer = files_of("bert").tokenizer
    texts = tokenizer.encode([text])
    ids = texts.input_ids.tolist()
    mask_id = tokenizer.special.mask_id
    assert mask_id is not None
    column = "logit" if kind == "raw" else "log_prob"
    return [
        float(value_of(column, (*ids[:i], mask_id, *ids[i + 1 :]), i, ids[i]))
        for i, word in enumerate(texts.word_ids.tolist())
        if word != -1
    ]


def test_one_sample_is_any_token_scaled_to_the_whole() -> None:
    terms = hash_terms(LONG)
    assert len(set(terms)) == len(terms) > 10
    with scorer_of() as scorer:
        drawn = {scorer.energy([LONG], num_samples=1, seed=seed)[0] for seed in range(200)}
    assert sorted(drawn) == pytest.approx(sorted(-len(terms) * term for term in terms))


@pytest.mark.parametrize("kind", ["raw", "norm"])
@pytest.mark.parametrize("num_samples", [1, 3, 40])
def test_estimates_are_unbiased(kind: str, num_samples: int) -> None:
    """The mean of many lies within five of its own standard errors, which the terms' variance gives."""
    terms = np.array(hash_terms(LONG, kind))
    repeats = 2000
    with scorer_of() as scorer:
        # Every repeat of the text is drawn for anew.
        found = np.array(scorer.energy([LONG] * repeats, kind, num_samples=num_samples, seed=5), dtype=float)
    error = len(terms) * terms.std() / math.sqrt(num_samples * repeats)
    assert abs(found.mean() + terms.sum()) < 5 * error
    assert found.std() == pytest.approx(error * math.sqrt(repeats), rel=0.1)


def test_estimates_depend_on_the_seed_and_the_texts_before_alone() -> None:
    texts = [LONG, "We the people", "", LONG, "the union"]
    with scorer_of(workers=1) as scorer:
        expected = scorer.energy(texts, num_samples=2, seed=1)
        assert expected == scorer.energy(texts, num_samples=2, seed=1)
        assert expected != scorer.energy(texts, num_samples=2, seed=2)
        assert expected[:2] == scorer.energy(texts[:2], num_samples=2, seed=1)
        assert expected[0] != expected[3]
    with pytest.MonkeyPatch.context() as patch, scorer_of(workers=3, max_batch_tokens=30) as scorer:
        patch.setattr(window_groups, "WINDOW_TEXTS", 2)
        assert scorer.energy(texts, num_samples=2, seed=1) == expected


def test_an_estimate_computes_its_own_rows_alone() -> None:
    rows: list[tuple[int, ...]] = []
    with scorer_of() as scorer:
        scorer.engine.before_call = rows.extend  # type: ignore[attr-defined]
        scorer.energy([LONG], num_samples=3)
        assert 1 <= len(rows) <= 3
        rows.clear()
        scorer.energy([LONG])
        assert len(rows) == len(hash_terms(LONG))


@pytest.mark.parametrize("num_samples", [None, 4])
@pytest.mark.parametrize("kind", ["raw", "norm"])
def test_no_tokens_no_energy(kind: str, num_samples: int | None) -> None:
    with scorer_of() as scorer:
        found = scorer.energy(["", "people", "  ", ""], kind, num_samples=num_samples)
        assert [energy is None for energy in found] == [True, False, True, True]
        assert scorer.energy([], kind, num_samples=num_samples) == []


def test_one_token() -> None:
    [term] = hash_terms("people")
    with scorer_of() as scorer:
        assert scorer.energy(["people"]) == [-term]
        assert scorer.energy(["people"], num_samples=7) == [pytest.approx(-term)]


def test_special_tokens_typed_in_a_text() -> None:
    with scorer_of() as scorer:
        plain, special = (
            scorer.energy(["We [MASK] people"], "norm", parse_special=parse) for parse in (False, True)
        )
        assert plain != special
        assert special[0] == -scorer.score(["We [MASK] people"], parse_special=True)[0].score  # type: ignore[operator]


@pytest.mark.parametrize("num_samples", [None, 2])
def test_errors_say_where(num_samples: int | None) -> None:
    with scorer_of(max_length=8) as scorer:
        with pytest.raises(TextTooLongError, match=r"texts\[2\]: \d+ tokens, but the model takes 8"):
            scorer.energy(["We", "people", LONG], num_samples=num_samples)
        with pytest.raises(InputError, match=r"texts\[1\]: expected a string"):
            scorer.energy(["We", 3], num_samples=num_samples)  # type: ignore[list-item]
        with pytest.raises(InputError, match="line 4: torn"):
            scorer.energy(["We", InputError("torn", line=4)], num_samples=num_samples)


def test_a_logit_that_is_no_number_is_an_error() -> None:
    class Broken(HashEngine):
        def score(self, batch: RowBatch, outputs: Outputs) -> TargetOutputs:
            found = super().score(batch, outputs)
            assert found.logit is not None
            found.logit[:] = np.nan
            return found

    with (
        Scorer(files_of("bert"), Broken(), workers=1) as scorer,
        pytest.raises(InputError, match=r"texts\[0\]: the model gave nan"),
    ):
        scorer.energy(["We"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "soft"}, "unknown kind 'soft' of energy; expected one of raw, norm"),
        ({"num_samples": 0}, "num_samples is 0; expected a whole number, from 1"),
        ({"num_samples": 2.0}, "num_samples is 2.0"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": None}, "seed is None"),
    ],
)
def test_options_that_are_refused(options: dict[str, object], message: str) -> None:
    with scorer_of() as scorer, pytest.raises(SettingsError, match=message):
        scorer.energy(["We"], **options)  # type: ignore[arg-type]


def test_models_that_have_none(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="a causal model; masking 'original' needs a masked one"):
        tiny_scorer("gpt2").energy(["We"])
    with (
        mlmfast.load(make_student(tmp_path / "student"), workers=1) as student,
        pytest.raises(SettingsError, match="a student model; masking 'original' needs a masked one"),
    ):
        student.energy(["We"])


def test_texts_must_be_an_iterable_of_strings() -> None:
    with scorer_of() as scorer, pytest.raises(SettingsError, match="expected an iterable of strings"):
        scorer.energy("We")


def test_compute_hands_on_the_outputs() -> None:
    """Whole rows of logits of a few rows, as programs that sample take them."""
    scorer = tiny_scorer("bert", engine="native")

    class OneRow:
        found: TargetOutputs | None = None

        def batches_of(self, rows: np.ndarray) -> list[np.ndarray]:
            return [rows]

        def batch(self, indices: np.ndarray) -> tuple[RowBatch, np.ndarray]:
            assert indices.tolist() == [0]
            window = scorer.prepare(["people"])
            return window.batch(window.batches[0])

        def scatter(self, found: TargetOutputs, slots: np.ndarray) -> None:
            self.found = found

    rows = OneRow()
    scorer.compute(rows, np.array([0]), Outputs(logits=True))
    assert rows.found is not None
    assert rows.found.logits is not None
    assert rows.found.logits.shape == (1, scorer.files.config.vocab_size)
