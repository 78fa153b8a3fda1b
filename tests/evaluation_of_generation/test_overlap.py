"""Self-BLEU, corpus BLEU and unique n-grams from one table are those of the plain loops."""

from __future__ import annotations

from pathlib import Path

import plain_ngrams as plain
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlmfast.errors import InputError, SettingsError
from mlmfast.evaluation import Overlap, units_of
from mlmfast.tokenization import load_tokenizer

DATA = Path(__file__).parent.parent / "data"
GPT, BERT = (
    [line.split() for line in (DATA / "generation" / name).read_text("utf-8").splitlines()]
    for name in ("gpt.txt", "bert_base.txt")
)
TEXTS = st.lists(st.text("abc", max_size=9), min_size=2, max_size=6)


def check(samples: list, references: list, max_order: int) -> None:
    overlap = Overlap(samples, references, max_order=max_order)
    orders = range(1, max_order + 1)
    own = overlap.self_bleu()
    assert own is not None
    assert own.score == pytest.approx(plain.self_bleu(samples, max_order), rel=1e-12)
    expected = plain.corpus_bleu([references] * len(samples), samples, max_order)
    assert overlap.corpus_bleu().score == pytest.approx(expected, rel=1e-12)
    assert overlap.unique_in_samples() == tuple(plain.unique_in_samples(samples, n) for n in orders)
    assert overlap.unique_against_references() == tuple(
        plain.unique_against_references(samples, references, n) for n in orders
    )


@pytest.mark.parametrize(
    ("samples", "references"), [(GPT, BERT), (BERT, GPT), (GPT[:7], GPT[5:12])], ids=["gpt", "bert", "both"]
)
@pytest.mark.parametrize("max_order", [1, 4, 5])
def test_real_samples(samples, references, max_order):
    check(samples, references, max_order)


@settings(max_examples=300, deadline=None)
@given(samples=TEXTS, references=TEXTS, max_order=st.integers(1, 4))
def test_any_texts(samples, references, max_order):
    check(samples, references, max_order)


def test_the_figure_of_nltk():
    found = Overlap(GPT).self_bleu()
    assert found is not None
    assert found.score == pytest.approx(16.383277888346583, rel=1e-12)  # nltk 3.10.4, corpus_bleu
    assert (found.length, found.reference_length, found.brevity_penalty) == (2321, 2321, 1.0)


def test_copies_are_not_diverse():
    copies = Overlap([GPT[0], GPT[0]])
    assert copies.self_bleu().score == pytest.approx(100)
    assert copies.unique_in_samples() == (0, 0, 0, 0)
    apart = Overlap(["abcde", "fghij"])
    assert apart.self_bleu().score == 0
    assert apart.unique_in_samples() == (100, 100, 100, 100)


def test_a_new_ngram_that_comes_twice_counts_once_against_references_and_never_in_samples():
    overlap = Overlap(["ab", "ab", "c"], ["a"], max_order=2)
    assert overlap.unique_in_samples() == (pytest.approx(20), 0)
    assert overlap.unique_against_references() == (pytest.approx(40), pytest.approx(50))


def test_short_and_empty_texts():
    one = Overlap(["a"])
    assert one.self_bleu() is None
    assert one.unique_in_samples() == (100, None, None, None)
    empty = Overlap(["", ""])
    assert empty.self_bleu().score == 0
    assert empty.unique_in_samples() == (None,) * 4


def test_what_is_refused():
    with pytest.raises(InputError, match="no samples"):
        Overlap([])
    with pytest.raises(SettingsError, match="max_order is 0"):
        Overlap(["a"], max_order=0)
    for figure in ("corpus_bleu", "unique_against_references"):
        with pytest.raises(InputError, match="no references"):
            getattr(Overlap(["a"]), figure)()


def test_units():
    texts = ["The Cat  sat", ""]
    assert units_of(texts, "word", lowercase=True) == [["the", "cat", "sat"], []]
    assert units_of(texts, "character") == ["TheCatsat", ""]
    tokenizer = load_tokenizer(DATA / "models" / "bert", "bert")
    (ids, none) = units_of(texts, "token", tokenizer=tokenizer)
    pieces = [tokenizer.vocabulary[i] for i in ids]
    assert "".join(piece.removeprefix("##") for piece in pieces) == "thecatsat"
    assert none == []
    with pytest.raises(SettingsError, match="tokenizer"):
        units_of(texts, "token")
    with pytest.raises(SettingsError, match="unknown unit 'line'"):
        units_of(texts, "line")


def test_tokens_of_proteins_are_those_that_are_scored():
    tokenizer = load_tokenizer(DATA / "models" / "esm2", "esm")
    tidy, wild = units_of(["MKV", " mk\nV*"], "token", lowercase=True, tokenizer=tokenizer)
    assert wild == tidy
    assert [tokenizer.vocabulary[i] for i in tidy] == ["M", "K", "V"]
