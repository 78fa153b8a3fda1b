"""Weights files, length normalisation, and the formulas of other tools reproduced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlmfast.errors import InputError, SettingsError
from mlmfast.rescoring.combination import Ranking, combine
from mlmfast.rescoring.features import LanguageModelScores, feature_matrix
from mlmfast.rescoring.lists import Hypothesis
from mlmfast.rescoring.normalisation import Normalisation
from mlmfast.rescoring.weights import (
    FIRST_PASS,
    Term,
    Weights,
    fairseq_mlm_scoring,
    mlm_scoring,
    read_weights,
)

# A decoder's 5-best list of LJ001-0002 (LJ Speech, public domain): first pass, text; and the PLLs and numbers
# of tokens under the embedded model.
FIVE_BEST = [
    (-3036.0082, "him being comparatively mater"),
    (-3036.1106, "in being comparatively mater"),
    (-3039.3872, "in being a comparatively mater"),
    (-3040.3088, "him being a comparatively mater"),
    (-3040.4112, "him being comparatively modern"),
]
PLLS = [-42.685, -40.708, -31.047, -34.698, -32.478]
NUM_TOKENS = [5, 5, 6, 6, 5]


def ranked(weights: Weights) -> Ranking:
    hypotheses = [
        Hypothesis(number, text, {"first_pass": score})
        for number, (score, text) in enumerate(FIVE_BEST, start=1)
    ]
    scores = {"bert": LanguageModelScores(np.array(PLLS), np.array(NUM_TOKENS))}
    return combine(feature_matrix(hypotheses, weights.terms, scores), weights.values)


@pytest.mark.parametrize(
    ("weight", "normalisation", "totals", "order"),
    [
        (0.3, "none", [-3048.8137, -3048.323, -3048.7013, -3050.7182, -3050.1546], [1, 2, 0, 4, 3]),
        (2.0, "gnmt:0.6", [-3098.8424, -3096.0346, -3082.5495, -3088.5468, -3088.2202], [2, 4, 3, 1, 0]),
        (15.0, "tokens", [-3164.0632, -3158.2346, -3117.0047, -3127.0538, -3137.8452], [2, 3, 4, 1, 0]),
    ],
)
def test_mlm_scoring_formula(
    weight: float, normalisation: str, totals: list[float], order: list[int]
) -> None:
    """Totals by the arithmetic of mlm-scoring's Hypotheses.rescore (--weight, --ln, --ln-type)."""
    ranking = ranked(mlm_scoring({"bert": weight}, Normalisation.parse(normalisation)))
    assert ranking.scores.tolist() == pytest.approx(totals, abs=5e-5)
    assert ranking.order.tolist() == order


@pytest.mark.parametrize(
    ("scale", "totals"),
    [
        (0.5, [-1539.3466, -1538.4093, -1535.2171, -1537.5034, -1536.4446]),
        (0.1, [-342.0173, -340.2483, -331.881, -335.2591, -333.2713]),
    ],
)
def test_fairseq_mlm_scoring_formula(scale: float, totals: list[float]) -> None:
    """Totals by the arithmetic of its MLMScorer.rescore."""
    ranking = ranked(fairseq_mlm_scoring("bert", scale))
    assert ranking.scores.tolist() == pytest.approx(totals, abs=5e-5)


def test_words_characters_and_a_normalised_first_pass() -> None:
    hypotheses = [Hypothesis(1, "a bc", {"first_pass": -6.0}), Hypothesis(2, "", {"first_pass": -5.0})]
    terms = (
        Term("feature", "first_pass", 1.0, Normalisation("tokens")),
        Term("length", "words", 0.5),
        Term("length", "characters", 0.1),
        Term("lm", "bert", 1.0, Normalisation("tokens")),
    )
    scores = {"bert": LanguageModelScores(np.array([-9.0, np.nan]), np.array([3, 0]))}
    matrix = feature_matrix(hypotheses, terms, scores)
    np.testing.assert_array_equal(matrix, [[-3.0, 2.0, 4.0, -3.0], [-5.0, 0.0, 0.0, np.nan]])


def test_a_missing_feature_names_hypothesis_and_choice() -> None:
    with pytest.raises(InputError, match=r"hypothesis 7: no feature 'acoustic', only 'first_pass'"):
        feature_matrix([Hypothesis(7, "a", {"first_pass": -1.0})], [Term("feature", "acoustic", 1.0)], {})


def test_a_language_model_without_scores_or_with_too_few_is_refused() -> None:
    hypotheses = [Hypothesis(1, "a", {"first_pass": -1.0})]
    terms = [Term("lm", "bert", 1.0)]
    with pytest.raises(SettingsError, match="name the language model 'bert', but scores came for 'gpt'"):
        feature_matrix(hypotheses, terms, {"gpt": LanguageModelScores(np.zeros(1), np.ones(1, np.int64))})
    with pytest.raises(SettingsError, match="2 scores and 1 token counts for 1 hypotheses"):
        feature_matrix(hypotheses, terms, {"bert": LanguageModelScores(np.zeros(2), np.ones(1, np.int64))})


MADE_WITH = {"models": {"bert": {"model": "m", "masking": "original"}}, "preparation": {"lowercase": True}}
WEIGHTS = Weights(
    (FIRST_PASS, Term("lm", "bert", 0.1 + 0.2, Normalisation("gnmt", 0.6)), Term("length", "words", -1.5)),
    missing="last",
    made_with=MADE_WITH,
)


def weights_made_with(made_with: object) -> str:
    return json.dumps(json.loads(WEIGHTS.to_json()) | {"made_with": made_with})


def test_weights_file_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "weights.json"
    path.write_text(WEIGHTS.to_json(), encoding="utf-8")
    assert read_weights(path) == WEIGHTS
    assert json.loads(path.read_text())["format_version"] == 1


def test_with_values() -> None:
    changed = WEIGHTS.with_values(np.array([1.0, 2.0, 3.0]))
    assert changed.values.tolist() == [1.0, 2.0, 3.0]
    assert changed.with_values(WEIGHTS.values) == WEIGHTS


def test_other_settings_are_refused() -> None:
    WEIGHTS.check(MADE_WITH)
    with pytest.raises(SettingsError, match=r"preparation.lowercase: true, now false"):
        WEIGHTS.check(MADE_WITH | {"preparation": {"lowercase": False}})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not json", "expected a weights file"),
        ("[]", "expected a weights file"),
        ("{}", "expected a weights file"),
        (WEIGHTS.to_json().replace('"format_version": 1', '"format_version": 2'), "format version 2"),
        (WEIGHTS.to_json().replace('"gnmt:0.6"', '"gnmt:x"'), "expected a number after gnmt:"),
        (WEIGHTS.to_json().replace('"last"', '"first"'), "unknown missing='first'"),
        (WEIGHTS.to_json().replace("-1.5", "null"), "weight of 'words' is None: expected a number"),
        (WEIGHTS.to_json().replace("-1.5", '"3"'), "weight of 'words' is '3': expected a number"),
        (WEIGHTS.to_json().replace("-1.5", "true"), "weight of 'words' is True: expected a number"),
        (
            WEIGHTS.to_json().replace("-1.5", "1e308"),
            r"weight of 'words' is 1e\+308: expected a finite number",
        ),
        (WEIGHTS.to_json().replace('"words"', "null"), "name of a term is None: expected a string"),
        (weights_made_with(None), "made_with is null: expected an object"),
        (weights_made_with([]), r"made_with is \[\]: expected an object"),
        (weights_made_with({"environment": None}), "made_with.environment is null: expected an object"),
        (weights_made_with({"environment": []}), r"made_with.environment is \[\]: expected"),
        (weights_made_with({"environment": {"models": None}}), "made_with.environment.models is null"),
        (weights_made_with({"environment": {"models": "x"}}), 'made_with.environment.models is "x"'),
        (WEIGHTS.to_json().replace("-1.5", "NaN"), "expected a finite number"),
    ],
)
def test_a_bad_weights_file_is_refused_by_its_name(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "weights.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        read_weights(path)
    assert str(caught.value).startswith(str(path))


def test_an_absent_weights_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_weights(tmp_path / "weights.json")


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ([], "at least one, each once"),
        ([("lm", "a", 1.0), ("lm", "a", 2.0)], "at least one, each once"),
        ([("am", "a", 1.0)], "unknown kind of term 'am'"),
        ([("length", "tokens", 1.0)], "unknown length 'tokens'"),
        ([("lm", "a", float("nan"))], "expected a finite number"),
        ([("lm", "a", float("inf"))], "expected a finite number"),
        ([("lm", "a", -1e308)], r"expected a finite number, at most 1e\+09 either way"),
    ],
)
def test_terms_that_do_not_fit_are_refused(terms: list[tuple[str, str, float]], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Weights(tuple(Term(*term) for term in terms))


@pytest.mark.parametrize("weight", ["2", None, True])
def test_weights_of_formulas_are_numbers(weight: Any) -> None:
    with pytest.raises(SettingsError, match=r"weight of 'mlm' is .*: expected a number"):
        mlm_scoring({"mlm": weight})
    with pytest.raises(SettingsError, match=r"weight of 'first_pass' is .*: expected a number"):
        fairseq_mlm_scoring("mlm", weight)


@pytest.mark.parametrize(
    "text",
    ["", "words", "gnmt", "gnmt:", "gnmt:nan", "gnmt:-1", "gnmt:10.5", "gnmt:1e9", "tokens:1", "none:"],
)
def test_unknown_normalisations_are_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        Normalisation.parse(text)


@pytest.mark.parametrize("text", ["none", "tokens", "gnmt:0.6", "gnmt:0", "gnmt:10"])
def test_normalisations_are_written_as_they_are_read(text: str) -> None:
    assert str(Normalisation.parse(text)) == text
