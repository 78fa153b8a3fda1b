"""Corpus metrics as sums of statistics, against jiwer and sacrebleu on whole corpora."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable

import jiwer
import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics import BLEU

from mlmfast.errors import InputError, SettingsError
from mlmfast.rescoring.corpus import NBestCorpus, nbest_corpus
from mlmfast.rescoring.lists import Hypothesis, NBestList
from mlmfast.rescoring.metrics import METRICS, ErrorRate, error_counts, metric_named
from mlmfast.types import Int64Array

WORDS = ["the", "cat", "sat", "on", "mat,", "a", "Dog", "it's"]


def sentences(seed: int, count: int, shortest: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(shortest, 12))) for _ in range(count)]


HYPOTHESES, REFERENCES, OTHERS = sentences(1, 60, 0), sentences(2, 60, 1), sentences(3, 60, 1)


def statistics(name: str) -> Int64Array:
    """One row per hypothesis; two references where the metric takes them."""
    metric = metric_named(name)
    several = name in ("bleu", "chrf")
    return np.concatenate(
        [
            metric.statistics([text], references if several else references[:1])
            for text, *references in zip(HYPOTHESES, REFERENCES, OTHERS, strict=True)
        ]
    )


CORPUS_METRICS: dict[str, Callable[[], float]] = {
    "wer": lambda: 100 * jiwer.wer(REFERENCES, HYPOTHESES),
    "cer": lambda: 100 * jiwer.cer(REFERENCES, HYPOTHESES),
    "bleu": lambda: sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES, OTHERS]).score,
    "chrf": lambda: sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES, OTHERS]).score,
}


@pytest.mark.parametrize("name", METRICS)
def test_summed_statistics_give_the_corpus_metric(name: str) -> None:
    value = metric_named(name).value(statistics(name).sum(axis=0))
    assert float(value) == pytest.approx(CORPUS_METRICS[name](), rel=1e-12)


def test_bleu_of_single_sentences() -> None:
    metric, rows = metric_named("bleu"), statistics("bleu")
    pairs = list(zip(HYPOTHESES, zip(REFERENCES, OTHERS, strict=True), strict=True))
    sentence = [BLEU(effective_order=True).sentence_score(text, both).score for text, both in pairs]
    np.testing.assert_allclose(metric.sentence_value(rows), sentence, atol=1e-12)
    plain = [sacrebleu.corpus_bleu([text], [[one] for one in both]).score for text, both in pairs]
    np.testing.assert_allclose(metric.value(rows), plain, atol=1e-12)


def test_chrf_of_single_sentences() -> None:
    metric, rows = metric_named("chrf"), statistics("chrf")
    expected = [
        sacrebleu.sentence_chrf(text, both).score
        for text, both in zip(HYPOTHESES, zip(REFERENCES, OTHERS, strict=True), strict=True)
    ]
    np.testing.assert_allclose(metric.sentence_value(rows), expected, atol=1e-12)


def test_bleu_without_any_ngram() -> None:
    metric = metric_named("bleu")
    assert metric.value(metric.statistics(["", "dog", "cat"], ["cat sat"])).tolist() == [0.0, 0.0, 0.0]
    assert metric.sentence_value(metric.statistics(["", "cat"], ["cat"])).tolist() == [0.0, 100.0]


def test_the_tokenizer_of_bleu_counts() -> None:
    per_character = metric_named("bleu", tokenize="char").statistics(["the cat"], ["the mat"])
    assert per_character[0, 0] == 6
    with pytest.raises(SettingsError, match="unknown tokenize='moses'; expected one of"):
        metric_named("bleu", tokenize="moses").statistics(["a"], ["a"])


def test_recipe_is_applied_to_both_sides() -> None:
    metric = metric_named("wer", recipe="lowercase-strip-punctuation")
    assert metric.statistics(["The cat.", "a  CAT", ""], ["the, CAT"]).tolist() == [[0, 2], [1, 2], [2, 2]]


def test_error_rate_without_reference_words_is_not_a_number() -> None:
    metric = metric_named("wer")
    assert np.isnan(metric.value(metric.statistics(["a"], [""])[0]))


def test_error_rates_take_one_reference() -> None:
    with pytest.raises(InputError, match="2 references, but wer takes one"):
        metric_named("wer").statistics(["a"], ["a", "b"])


@pytest.mark.parametrize("unit", ["word", "character"])
def test_kinds_of_edits_add_up(unit: str) -> None:
    metric = ErrorRate(unit)
    rows = [metric.statistics([text], [ref])[0] for text, ref in zip(HYPOTHESES, REFERENCES, strict=True)]
    edits, length = np.sum(rows, axis=0)
    counts = error_counts(metric, HYPOTHESES, REFERENCES)
    assert counts.substitutions + counts.deletions + counts.insertions == edits
    assert counts.substitutions + counts.deletions + counts.hits == length
    assert error_counts(metric, [], []).hits == 0


def test_unknown_metric_is_refused() -> None:
    with pytest.raises(SettingsError, match="unknown metric 'ter'; expected one of wer, cer, bleu, chrf"):
        metric_named("ter")


def test_word_error_rate_of_100_000_hypotheses_takes_seconds() -> None:
    metric = metric_named("wer", recipe="lowercase")
    lists = [sentences(seed, 100, 8) for seed in range(10)]
    start = time.perf_counter()
    for number in range(1000):
        metric.statistics(lists[number % 10], [REFERENCES[number % 60]])
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize("package", ["rapidfuzz", "sacrebleu"])
def test_missing_packages_name_the_extra(package: str) -> None:
    code = f"""
import sys
sys.modules[{package!r}] = None
from mlmfast import MissingExtraError
from mlmfast.rescoring.metrics import metric_named
for name in ("wer", "bleu"):
    try:
        metric_named(name).statistics(["a"], ["a"])
    except MissingExtraError as error:
        print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"needs the package {package!r}" in run.stdout
    assert "pip install 'mlmfast[nbest]'" in run.stdout


def nbest(name: str, texts: list[str], references: tuple[str, ...]) -> NBestList:
    hypotheses = [
        Hypothesis(number, text, {"first_pass": -float(number)}) for number, text in enumerate(texts, start=1)
    ]
    return NBestList(name, tuple(hypotheses), references, line=3)


def corpus_of(lists: list[NBestList], name: str = "wer") -> NBestCorpus:
    pairs = [(each, np.zeros((len(each.hypotheses), 1))) for each in lists]
    return nbest_corpus(pairs, metric_named(name))


def test_lists_without_reference_are_counted_and_left_out() -> None:
    corpus = corpus_of([nbest("a", ["x y", "x"], ("x",)), nbest("b", ["x"], ()), nbest("c", ["z"], ("z",))])
    assert corpus.ids == ("a", "c")
    assert corpus.offsets.tolist() == [0, 2, 3]
    assert corpus.num_without_reference == 1
    with pytest.raises(InputError, match="no list has a reference"):
        corpus_of([nbest("b", ["x"], ())])


def test_a_list_without_hypotheses_loses_its_reference_words() -> None:
    corpus = corpus_of([nbest("a", [], ("x y z",)), nbest("b", ["x"], ("x",))])
    assert corpus.statistics.tolist() == [[3, 3], [0, 1]]


def test_errors_name_the_list() -> None:
    with pytest.raises(InputError, match="list 'a', line 3: 2 references, but wer takes one"):
        corpus_of([nbest("a", ["x"], ("x", "y"))])
    with pytest.raises(InputError, match="list 'a', line 3: hypothesis 1: feature 1 is inf"):
        nbest_corpus([(nbest("a", ["x"], ("x",)), np.full((1, 1), np.inf))], metric_named("wer"))


@pytest.mark.parametrize("name", METRICS)
def test_oracle(name: str) -> None:
    texts = [["a b", "the cat sat on", "the cat sat on mat"], ["it's", "a dog", "a dog"]]
    references = ("the cat sat on mat"), ("a dog sat")
    corpus = corpus_of([nbest(r, t, (r,)) for t, r in zip(texts, references, strict=True)], name)
    assert corpus.oracle(metric_named(name)).tolist() == [2, 4]
    assert corpus.first_pass().tolist() == [0, 3]


def test_contenders_of_lists_with_missing_scores() -> None:
    corpus = corpus_of([nbest("a", ["", "x", "y"], ("x",)), nbest("b", ["x", ""], ("x",))])
    corpus.features[[0, 4]] = np.nan
    with pytest.raises(SettingsError, match="take the contenders"):
        corpus.winners(np.ones(1))
    kept = corpus.contenders("first_pass_rank")
    assert kept.offsets.tolist() == [0, 1, 2]
    assert kept.statistics.tolist() == corpus.statistics[[0, 3]].tolist()
    assert corpus.contender_indices("first_pass_rank").tolist() == [0, 3]
    assert corpus.contenders("last").offsets.tolist() == [0, 2, 3]
    assert corpus.contender_indices("last").tolist() == [1, 2, 3]


def test_subset() -> None:
    corpus = corpus_of([nbest("a", ["x", "y"], ("x",)), nbest("b", ["x"], ("z",)), nbest("c", [""], ("z",))])
    part = corpus.subset(np.array([2, 0]))
    assert part.ids == ("c", "a")
    assert part.offsets.tolist() == [0, 1, 3]
    assert part.statistics.tolist() == corpus.statistics[[2, 0, 1]].tolist()
