"""Lists through the façade: what a loop over hypotheses gives, from fewer rows, in constant memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hash_engine import scorer_of

from mlmfast.errors import InputError, SettingsError
from mlmfast.rescoring import (
    Hypothesis,
    LanguageModel,
    NBestList,
    Rescorer,
    TextPreparation,
    Weights,
    mlm_scoring,
)
from mlmfast.rescoring.normalisation import Normalisation
from mlmfast.rescoring.weights import FIRST_PASS, Term
from mlmfast.scorer import Scorer
from mlmfast.window_groups import WINDOW_TEXTS

WORDS = ("We", "the", "people", "of", "unconstitutional", "order", "?!")
ONE = mlm_scoring({"mlm": 0.5})


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with scorer_of() as scorer:
        yield scorer


def nbest(id: str, *texts: str) -> NBestList:
    """First-pass totals fall by 1 from hypothesis to hypothesis."""
    hypotheses = (Hypothesis(rank, text, {"first_pass": -float(rank)}) for rank, text in enumerate(texts, 1))
    return NBestList(id, tuple(hypotheses))


def random_lists(seed: int, count: int, most: int = 6, empty: float = 0.1) -> list[NBestList]:
    rng = np.random.default_rng(seed)

    def text() -> str:
        return "" if rng.random() < empty else " ".join(rng.choice(WORDS, rng.integers(1, 5)))

    return [nbest(f"u{index}", *(text() for _ in range(rng.integers(0, most)))) for index in range(count)]


def by_hand(scorer: Scorer, nbest: NBestList, weight: float, divisor: str = "none") -> list[float | None]:
    """The totals, one hypothesis after the other."""
    totals = []
    for hypothesis in nbest.hypotheses:
        (result,) = scorer.score([hypothesis.text])
        divisors = Normalisation.parse(divisor).divisors(np.array([result.num_tokens]))
        totals.append(
            None
            if result.score is None
            else hypothesis.features["first_pass"] + weight * (result.score / divisors[0])
        )
    return totals


@pytest.mark.parametrize("normalisation", ["none", "tokens", "gnmt:0.6"])
def test_lists_are_rescored_as_by_hand(scorer: Scorer, normalisation: str) -> None:
    lists = random_lists(0, 60)
    weights = mlm_scoring({"mlm": 0.5}, Normalisation.parse(normalisation))
    rescorer = Rescorer([LanguageModel(scorer)], weights)
    found = list(rescorer.rescore_lists(lists))
    assert [rescored.nbest for rescored in found] == lists
    for rescored in found:
        expected = by_hand(scorer, rescored.nbest, 0.5, normalisation)
        assert list(rescored.scores) == expected
        ranked = [
            total for total in (rescored.scores[place] for place in rescored.order) if total is not None
        ]
        assert ranked == sorted(ranked, reverse=True)
        for rank, place in enumerate(rescored.order):
            if expected[place] is None:
                assert place == rank
    assert any(rescored.order[:1] not in ((), (0,)) for rescored in found)


def test_a_list_in_memory(scorer: Scorer) -> None:
    rescorer = Rescorer([LanguageModel(scorer)], ONE)
    (streamed,) = rescorer.rescore_lists([nbest("u", "We the people", "", "the order", "people")])
    order, scores = rescorer.rescore(["We the people", "", "the order", "people"], [-1.0, -2.0, -3.0, -4.0])
    assert (order, scores) == (streamed.order, streamed.scores)
    assert scores[1] is None
    assert order[1] == 1
    assert rescorer.rescore([], []) == ((), ())
    weights = Weights((FIRST_PASS, Term("feature", "am", 2.0)))
    scores = Rescorer([], weights).rescore(["a", "b"], {"first_pass": [-1.0, -2.0], "am": [0.0, 3.0]})
    assert scores == ((1, 0), (-1.0, 4.0))
    with pytest.raises(SettingsError, match="2 hypotheses, but 1 scores 'first_pass'"):
        rescorer.rescore(["a", "b"], [-1.0])


def test_texts_are_scored_once_and_rows_shared(scorer: Scorer) -> None:
    lists = random_lists(1, 200)
    texts = [hypothesis.text for found in lists for hypothesis in found.hypotheses]
    rescorer = Rescorer([LanguageModel(scorer)], ONE)
    list(rescorer.rescore_lists(lists))
    counts = rescorer.counts
    assert counts.num_texts == len(texts)
    assert counts.num_repeated == len(texts) - len(set(texts)) > 0
    assert counts.num_rows == sum(result.num_tokens for result in scorer.score(texts))
    distinct = sum(result.num_tokens for result in scorer.score(sorted(set(texts))))
    assert 0 < counts.num_computed < distinct < counts.num_rows


def test_texts_are_remembered_over_windows_and_calls_but_not_for_ever(scorer: Scorer) -> None:
    far_apart = [nbest(f"u{i}", f"We {i}", f"the {i}") for i in range(2 * WINDOW_TEXTS)]
    again = nbest("again", "We 0", "the 0")
    for remembered, repeated in ((1 << 16, 6), (100, 4), (0, 0)):
        rescorer = Rescorer([LanguageModel(scorer, remembered=remembered)], ONE)
        *_, last = rescorer.rescore_lists([*far_apart, again])
        for _ in range(2):
            order, scores = rescorer.rescore(["We 0", "the 0"], [-1.0, -2.0])
            assert (order, scores) == (last.order, last.scores)
        assert rescorer.counts.num_repeated == repeated


def test_lists_are_read_as_they_are_needed(scorer: Scorer) -> None:
    read = 0

    def lists() -> Iterator[NBestList]:
        nonlocal read
        for index in range(100 * WINDOW_TEXTS):
            read += 1
            yield nbest(f"u{index}", "We the people", "the people")

    found = Rescorer([LanguageModel(scorer)], ONE).rescore_lists(lists())
    for _ in range(3):
        next(found)
    assert read <= 4 * WINDOW_TEXTS


def test_several_models_and_other_scores_are_added(scorer: Scorer) -> None:
    lists = random_lists(2, 30, empty=0.0)
    models = [
        LanguageModel(scorer, "plain"),
        LanguageModel(scorer, "unmasked", masking="none", preparation=TextPreparation(append_period=True)),
    ]
    terms = (FIRST_PASS, Term("lm", "unmasked", 0.25), Term("length", "words", 3.0), Term("lm", "plain", 0.5))
    for rescored in Rescorer(models, Weights(terms)).rescore_lists(lists):
        for index, hypothesis in enumerate(rescored.nbest.hypotheses):
            plain = scorer.score([hypothesis.text])[0].score
            unmasked = scorer.score([hypothesis.text + "."], "none")[0].score
            if hypothesis.text.endswith("!"):
                unmasked = scorer.score([hypothesis.text], "none")[0].score
            words = len(hypothesis.text.split())
            total = hypothesis.features["first_pass"] + 0.25 * unmasked + 3.0 * words + 0.5 * plain
            assert rescored.scores[index] == pytest.approx(total)
            assert rescored.added(index) == {"plain": plain, "unmasked": unmasked}


LONG = " ".join(["people"] * 80)


def test_a_hypothesis_that_is_too_long(scorer: Scorer, caplog: pytest.LogCaptureFixture) -> None:
    lists = [nbest("a", "We"), nbest("b", LONG, "We", "the"), nbest("c", "We")]
    refused = Rescorer([LanguageModel(scorer)], ONE).rescore_lists(lists)
    assert next(refused).nbest.id == "a"
    with pytest.raises(InputError, match=r"list 'b', hypothesis 1: \d+ tokens, but the model takes 64"):
        next(refused)
    for missing, place in (("first_pass_rank", 0), ("last", 2)):
        weights = Weights(ONE.terms, missing)
        rescorer = Rescorer([LanguageModel(scorer)], weights, on_error="skip")
        _, rescored, _ = rescorer.rescore_lists(lists)
        assert rescored.scores[0] is None
        assert rescored.order.index(0) == place
        assert rescorer.counts.num_errors == 1
    assert "skipped: list 'b', hypothesis 1: " in caplog.text
    windowed = Rescorer([LanguageModel(scorer, overlong="window")], ONE)
    assert None not in [score for found in windowed.rescore_lists(lists) for score in found.scores]


def test_a_feature_that_a_list_lacks(scorer: Scorer) -> None:
    rescorer = Rescorer([], Weights((FIRST_PASS, Term("feature", "am", 1.0))))
    with pytest.raises(InputError, match="list 'u': hypothesis 1: no feature 'am', only 'first_pass'"):
        list(rescorer.rescore_lists([nbest("u", "We")]))


def test_what_does_not_fit_is_refused(scorer: Scorer) -> None:
    model = LanguageModel(scorer)
    with pytest.raises(SettingsError, match="the weights are for the language models bert, but mlm came"):
        Rescorer([model], mlm_scoring({"bert": 1.0}))
    with pytest.raises(SettingsError, match="the language models mlm, but none came"):
        Rescorer([], ONE)
    with pytest.raises(SettingsError, match="unknown on_error 'stop'"):
        Rescorer([model], ONE, on_error="stop")
    with pytest.raises(SettingsError, match="unknown masking 'all'"):
        LanguageModel(scorer, masking="all")
    with pytest.raises(SettingsError, match="remembered is -1; expected a number of texts, 0 or more"):
        LanguageModel(scorer, remembered=-1)


def test_settings_name_what_scores_depend_on(scorer: Scorer) -> None:
    def settings(**options: object) -> dict[str, object]:
        return Rescorer([LanguageModel(scorer, **options)], ONE).settings()

    plain = Weights(ONE.terms, made_with=settings())
    plain.check(settings())
    for options, name in (
        ({"masking": "whole_word"}, "models.mlm.masking"),
        ({"score_eos": True}, "models.mlm.score_eos"),
        ({"preparation": TextPreparation(lowercase=True)}, "models.mlm.preparation.lowercase"),
    ):
        with pytest.raises(SettingsError, match=f"tuned with other settings .{name}: "):
            plain.check(settings(**options))
