"""Lazy rescoring puts the winner of full scoring first, from fewer rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hash_engine import HashEngine, files_of, scorer_of
from test_rescorer import LONG, nbest, random_lists
from tiny_models import DATA, tiny_scorer

from mlmfast.engines import Outputs
from mlmfast.errors import InputError, SettingsError
from mlmfast.rescoring import (
    LanguageModel,
    NBestList,
    Normalisation,
    Rescorer,
    TextPreparation,
    Weights,
    mlm_scoring,
    read_lists,
    rescore_lazily,
)
from mlmfast.rescoring import lazy_rescoring as lazy_module
from mlmfast.rescoring.lazy_rescoring import LazyCounts
from mlmfast.rescoring.weights import FIRST_PASS, Term
from mlmfast.scorer import Scorer
from mlmfast.types import RowBatch, TargetOutputs

ONE = mlm_scoring({"mlm": 0.5})


def assert_winners_are_those_of_full_scoring(
    rescorer: Rescorer, lists: list[NBestList], counts: LazyCounts
) -> None:
    """Whole lists are compared, totals to the last bit."""
    name = rescorer.models[-1].name
    lazily = list(rescore_lazily(rescorer, lists, counts))
    assert [found.nbest for found in lazily] == lists
    for found, full in zip(lazily, rescorer.rescore_lists(lists), strict=True):
        if not full.order:
            assert found.order == ()
            continue
        winner = full.order[0]
        others = [place for place in range(len(full.order)) if place != winner]
        assert found.order == (winner, *others)
        assert found.scores[winner] == full.scores[winner]
        assert found.features[name][winner] == full.features[name][winner]
        assert {found.scores[place] for place in others} <= {None}


@pytest.mark.parametrize("masking", ["original", "word_l2r", "whole_word", "stride:2", "none"])
@pytest.mark.parametrize("normalisation", ["none", "gnmt:0.6"])
def test_lazy_is_full(masking: str, normalisation: str) -> None:
    weights = mlm_scoring({"mlm": 0.05}, Normalisation.parse(normalisation))
    with scorer_of() as scorer:
        rescorer = Rescorer([LanguageModel(scorer, masking=masking)], weights)
        counts = LazyCounts()
        assert_winners_are_those_of_full_scoring(rescorer, random_lists(0, 150), counts)
        assert 0 < counts.num_computed < counts.num_full < counts.num_rows
        assert counts.num_fallbacks == 0


@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0, 4.0])
def test_lazy_is_full_on_speech_lists(weight: float) -> None:
    lists = [found for found in read_lists(DATA / "nbest" / "speech.json") if isinstance(found, NBestList)]
    model = LanguageModel(
        tiny_scorer("bert", engine="native"), preparation=TextPreparation(append_period=True)
    )
    counts = LazyCounts()
    rescorer = Rescorer([model], mlm_scoring({"mlm": weight}))
    assert_winners_are_those_of_full_scoring(rescorer, lists, counts)
    assert counts.num_computed < counts.num_full


def test_other_models_and_scores_count_in_full() -> None:
    terms = (FIRST_PASS, Term("lm", "last", 0.1), Term("length", "words", -1.0), Term("lm", "other", 0.1))
    lists = random_lists(3, 60)
    with scorer_of() as scorer:
        models = [LanguageModel(scorer, "other", masking="none"), LanguageModel(scorer, "last")]
        rescorer = Rescorer(models, Weights(terms))
        assert_winners_are_those_of_full_scoring(rescorer, lists, LazyCounts())
        for found in rescore_lazily(rescorer, lists):
            scored = [hypothesis.text != "" for hypothesis in found.nbest.hypotheses]
            assert [score is not None for score in found.features["other"]] == scored


@pytest.mark.parametrize("missing", ["first_pass_rank", "last"])
def test_empty_and_overlong_hypotheses(missing: str) -> None:
    lists = [
        *[nbest(f"u{i}", *texts) for i, texts in enumerate([(), ("",), ("", "We"), ("We", ""), (LONG,)])],
        nbest("v", LONG, "We the", "the people"),
        nbest("w", "the people", LONG, "We the"),
    ]
    with scorer_of() as scorer:
        rescorer = Rescorer([LanguageModel(scorer)], Weights(ONE.terms, missing), on_error="skip")
        assert_winners_are_those_of_full_scoring(rescorer, lists, LazyCounts())
        assert rescorer.counts.num_errors == 2 * 3
        strict = Rescorer([LanguageModel(scorer)], Weights(ONE.terms, missing))
        found = rescore_lazily(strict, lists)
        assert [next(found).nbest.id for _ in range(4)] == ["u0", "u1", "u2", "u3"]
        with pytest.raises(InputError, match=r"list 'u4', hypothesis 1: \d+ tokens, but the model takes 64"):
            next(found)


def test_a_negative_weight_needs_full_scoring() -> None:
    with scorer_of() as scorer:
        counts = LazyCounts()
        rescorer = Rescorer([LanguageModel(scorer)], mlm_scoring({"mlm": -0.5}))
        lists = random_lists(4, 20)
        found = list(rescore_lazily(rescorer, lists, counts))
        assert [f.order for f in found] == [f.order for f in rescorer.rescore_lists(lists)]
        assert counts.num_fallbacks == sum(len(found.hypotheses) > 0 for found in lists)
        assert counts.num_computed == counts.num_full


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_model_that_gives_no_number(value: float) -> None:
    class Broken(HashEngine):
        def score(self, batch: RowBatch, outputs: Outputs) -> TargetOutputs:
            found = super().score(batch, outputs)
            return replace(found, log_prob=np.full_like(found.log_prob, value))

    lists = [nbest("u", "We the people", "the people")]
    with Scorer(files_of("bert"), Broken(), workers=1) as scorer:
        with pytest.raises(InputError, match=f"list 'u', hypothesis 1: the model gave {value}"):
            list(rescore_lazily(Rescorer([LanguageModel(scorer)], ONE), lists))
        (found,) = rescore_lazily(Rescorer([LanguageModel(scorer)], ONE, on_error="skip"), lists)
        assert (found.order, found.scores) == ((0, 1), (None, None))


def test_windows_hold_whole_lists_and_are_read_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_module, "WINDOW_TEXTS", 10)
    lists = random_lists(5, 100)
    read = []

    def noted():
        for found in lists:
            read.append(found)
            yield found

    with scorer_of() as scorer:
        rescorer = Rescorer([LanguageModel(scorer)], ONE)
        steps = [len(read) for _ in rescore_lazily(rescorer, noted())]
        assert max(later - earlier for earlier, later in pairwise(steps)) <= 11
        assert_winners_are_those_of_full_scoring(rescorer, lists, LazyCounts())


def test_no_model_is_refused() -> None:
    with pytest.raises(SettingsError, match="saves rows of a language model, but there is none"):
        rescore_lazily(Rescorer([], Weights((FIRST_PASS,))), [])
