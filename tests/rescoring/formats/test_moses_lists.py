"""Moses-style lists: fields found from the right, one feature added, every other byte kept."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from list_files import SAMPLES, read, read_text, skipped, texts, totals, worst_first, write

from mlmfast.errors import InputError, SettingsError
from mlmfast.rescoring import RescoredList
from mlmfast.rescoring.formats.base import ReadOptions
from mlmfast.rescoring.formats.moses import parse

NO_OPTIONS = ReadOptions()


@pytest.mark.parametrize(
    ("line", "text", "features"),
    [
        ("0 ||| a b ||| F0= -1 ||| -1", "a b", {"F0": -1}),
        (
            "0 ||| a b ||| d: 0 lm: -3.5 tm: -1 -2 w: -4 ||| -9",
            "a b",
            {"d": 0, "lm": -3.5, "tm_0": -1, "w": -4},
        ),
        ("0 ||| a ||| LM0= -3 T0= -1 -2 ||| -9 ||| 0=0", "a", {"LM0": -3, "T0_0": -1, "T0_1": -2}),
        ("0 ||| a b ||| LM0= -3 ||| -9 ||| 0-1=0-1 ||| 0-0 1-1", "a b", {"LM0": -3}),
        ("0 ||| a ||| LM0= -3 ||| -9 |||", "a", {"LM0": -3}),
        ("0 ||| a ||| 0-0 ||| WordScores= -0.5 -0.5 ||| F0= -1 ||| -1", "a", {"F0": -1}),
        ("0 ||| a ||| 0.1,0.9 0.5,0.5 ||| F0= -1 ||| -1", "a", {"F0": -1}),
        ("0 ||| a ||| tm_0=-2.5 lm_0=-3 ||| -9", "a", {"tm_0": -2.5, "lm_0": -3}),
        ("0 ||| a ||| -1 -2.5 ||| -9", "a", {"feature_0": -1, "feature_1": -2.5}),
        ("0 ||| ||| F0= -1 ||| -1", "", {"F0": -1}),
        ("0 |||  ||| F0= -1 ||| -1", "", {"F0": -1}),
        ("0 ||| a ||| ||| -1", "a", {}),
        ("0 ||| a | b || c ||| d|||e ||| F0= -1 ||| -1", "a | b || c ||| d|||e", {"F0": -1}),
        ("0 ||| ||| ||| ||| F0= -1 ||| -1", "||| |||", {"F0": -1}),
        ("0 ||| a ||| b ||| 0.5", "a ||| b", {}),
        ("0 ||| 0-0 ||| F0= -1 ||| -1", "0-0", {"F0": -1}),
    ],
)
def test_the_fields_of_a_line(line, text, features):
    row = parse(line + "\n", NO_OPTIONS)
    assert row.error is None
    assert (row.id, row.text) == ("0", text)
    assert features.items() <= row.features.items()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0 ||| a ||| F0= -1x ||| -1", "value of feature 'F0' is '-1x'"),
        ("0 ||| a ||| F0= ||| -1", "'F0' has no value"),
        ("0 ||| a ||| F0= -1 F0= -2 ||| -1", "'F0' comes twice"),
        ("0 ||| a ||| F0= -1 ||| gedi-25.58", "the total is 'gedi-25.58'"),
        ("0 ||| a ||| F0= NaN ||| -1", "'NaN'"),
        ("0 ||| a ||| F0= -1 ||| -inf", "the total is '-inf'"),
        ("0 ||| a", "no total"),
        ("0 ||| a ||| F0= -1 ||| x ||| -1", "the features cannot be read, or are missing"),
    ],
)
def test_a_bad_line_is_named_and_its_list_kept(line, reason, tmp_path):
    lines = [
        "0 ||| first ||| F0= -0.5 ||| -0.5",
        line,
        "0 ||| third ||| F0= -3 ||| -3",
        "1 ||| b ||| F0= -1 ||| -1",
    ]
    text = "".join(f"{content}\n" for content in lines)
    with pytest.raises(InputError, match=f"^line 2: .*{re.escape(reason)}"):
        read_text(tmp_path, text, "moses")
    lists, errors = skipped(tmp_path / "lists", "moses")
    assert [error.line for error in errors] == [2]
    assert [texts(nbest) for nbest in lists] == [["first", "third"], ["b"]]
    assert lists[0].hypotheses[1].number == 3


def test_a_sentence_whose_lines_are_all_bad_is_still_there(tmp_path):
    (tmp_path / "lists").write_text("0 ||| a ||| F0= x ||| -1\n1 ||| b ||| F0= -1 ||| -1\n")
    lists, errors = skipped(tmp_path / "lists", "moses")
    assert [(nbest.id, len(nbest.hypotheses)) for nbest in lists] == [("0", 0), ("1", 1)]
    assert len(errors) == 1


def test_the_sum_behind_a_normalized_total():
    normalized = read(SAMPLES / "marian/normalized.nbest")[0].hypotheses[0]
    assert normalized.text == "Nein ."
    assert normalized.features["first_pass"] == -0.0375563
    assert normalized.features["first_pass_normalized"] == -0.0125188
    for name, power in (("normalized", 1.0), ("gnmt", 0.6)):
        for nbest in read(SAMPLES / f"marian/{name}.nbest", length_power=power):
            for hypothesis in nbest.hypotheses:
                assert hypothesis.features["first_pass"] == pytest.approx(hypothesis.features["F0"], rel=2e-5)


def test_costs_of_nematus_are_turned_around():
    nbest = read(SAMPLES / "marian/nematus.nbest")[0]
    assert totals(nbest)[0] == -0.247528422963
    assert totals(nbest) == sorted(totals(nbest), reverse=True)


def test_a_feature_is_added_as_marian_adds_it(tmp_path):
    """The decoder's list with the scorer's feature is the scorer's list, to the byte."""
    output = read(SAMPLES / "marian/scorer_output.nbest")
    rescored = []
    for nbest, scored in zip(read(SAMPLES / "marian/scorer_input.nbest"), output, strict=True):
        scores = tuple(hypothesis.features["Score"] for hypothesis in scored.hypotheses)
        rescored.append(RescoredList(nbest, tuple(range(len(scores))), scores, {"Score": scores}))
    written = write(tmp_path / "out", "moses", rescored)
    assert written.read_bytes() == (SAMPLES / "marian/scorer_output.nbest").read_bytes()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("0 ||| a  b ||| F0= -1  ||| -1", "0 ||| a  b ||| F0= -1 MLM0= -0.0  ||| -1"),
        ("0 ||| a ||| d: 0 lm: -3 ||| -1", "0 ||| a ||| d: 0 lm: -3 MLM0: -0.0 ||| -1"),
        ("0 ||| a ||| lm_0=-3 ||| -1", "0 ||| a ||| lm_0=-3 MLM0=-0.0 ||| -1"),
        ("0 ||| a ||| -3 -2 ||| -1", "0 ||| a ||| -3 -2 -0.0 ||| -1"),
        ("0 ||| a ||| 1.5", "0 ||| a ||| MLM0= -0.0 ||| 1.5"),
        ("0 ||| a ||| ||| -1", "0 ||| a ||| MLM0= -0.0 ||| -1"),
        ("0 ||| ||| F0= -1 ||| -1 ||| 0-0\r", "0 ||| ||| F0= -1 MLM0= -0.0 ||| -1 ||| 0-0\r"),
    ],
)
def test_a_feature_is_added_in_the_style_of_the_line(line, expected, tmp_path):
    (nbest,) = read_text(tmp_path, line + "\n", "moses")
    written = write(tmp_path / "out", "moses", [worst_first(nbest, "MLM0")])
    assert re.sub(" +", " ", written.read_bytes().decode()) == re.sub(" +", " ", expected) + "\n"


def test_a_hypothesis_without_a_score_gets_nan(tmp_path):
    (nbest,) = read_text(tmp_path, "0 ||| ||| F0= -1 ||| -1\n", "moses")
    rescored = RescoredList(nbest, (0,), (None,), {"MLM0": (None,)})
    assert write(tmp_path / "out", "moses", [rescored]).read_text() == "0 ||| ||| F0= -1 MLM0= nan ||| -1\n"


@pytest.mark.parametrize("features", ["MLM0= -1", "MLM0= -1 -2"])
def test_a_feature_of_the_same_name_is_refused(features, tmp_path):
    (nbest,) = read_text(tmp_path, f"0 ||| a ||| {features} ||| -1\n", "moses")
    with pytest.raises(SettingsError, match="'MLM0' already"):
        write(tmp_path / "out", "moses", [worst_first(nbest, "MLM0")])


def test_a_last_line_without_its_end_may_move_up(tmp_path):
    (nbest,) = read_text(tmp_path, "0 ||| a ||| F0= -1 ||| -1\n0 ||| b ||| F0= -2 ||| -2", "moses")
    written = write(tmp_path / "out", "moses", [worst_first(nbest, None)])
    assert written.read_text() == "0 ||| b ||| F0= -2 ||| -2\n0 ||| a ||| F0= -1 ||| -1\n"


# A text that ends like an alignment field cannot be told from one.
words = st.text(st.characters(exclude_characters="|-,", exclude_categories=["Z", "C"]), min_size=1)
sentences = st.lists(words | st.sampled_from(["|", "||", "|||", "F0=", "-1"]), max_size=6).map(" ".join)


@settings(deadline=None, max_examples=40)
@given(st.lists(sentences, min_size=1, max_size=4))
def test_any_text_comes_through(tmp_path_factory, contents):
    folder = tmp_path_factory.mktemp("lists")
    text = "".join(f"7 ||| {content} ||| F0= -{n} ||| -{n}\n" for n, content in enumerate(contents))
    (nbest,) = read_text(folder, text, "moses")
    assert texts(nbest) == [content.strip() for content in contents]
    written = write(folder / "out", "moses", [worst_first(nbest, None)])
    assert written.read_bytes().decode() == "\n".join(reversed(text.split("\n")[:-1])) + "\n"
