"""Rescored lists read again: hypotheses without a score keep their places, first passes stay apart."""

from __future__ import annotations

import json
import math

import pytest
from list_files import MANIFEST, SAMPLES, SETTINGS, read, read_text, skipped, texts, worst_first, write

from mlmfast.errors import InputError, SettingsError
from mlmfast.io.meta import Meta, Progress, write_meta
from mlmfast.rescoring import Hypothesis, NBestList, RescoredList, Rescorer, Weights, open_lists
from mlmfast.rescoring.weights import FIRST_PASS, Term

NBEST = NBestList(
    "0",
    (
        Hypothesis(1, "a", {"first_pass": -1.0}),
        Hypothesis(2, "", {"first_pass": -2.0}),
        Hypothesis(3, "c", {"first_pass": -3.0}),
    ),
)
PARTLY_SCORED = RescoredList(NBEST, (2, 1, 0), (None, None, -3.5), {"mlm": (None, None, -0.5)})
FORMATS_THAT_TELL = ["mlm-scoring", "jsonl", "csv", "espnet"]
FORMATS_WITH_FEATURES = ["mlm-scoring", "jsonl", "csv", "moses"]


def values(nbest, name):
    """The feature of each hypothesis, None for no score."""
    found = [hypothesis.features[name] for hypothesis in nbest.hypotheses]
    return [None if math.isnan(value) else value for value in found]


@pytest.mark.parametrize("format", ["mlm-scoring", "jsonl", "csv", "moses", "espnet", "kaldi"])
def test_a_hypothesis_without_a_total_keeps_its_place(format, tmp_path):
    (again,) = read(write(tmp_path / "out", format, [PARTLY_SCORED], added=("mlm",)), format)
    assert texts(again) == (["a", "", "c"] if format == "kaldi" else ["c", "", "a"])
    # Moses's totals stay, so that they do not follow the new order.
    assert again.flags == (("unordered",) if format == "moses" else ())


def test_nemo_beams_without_a_total_keep_their_places(tmp_path):
    lists = read(SAMPLES / "nemo_beams.tsv", "nemo", manifest=MANIFEST)
    nothing = [
        RescoredList(nbest, tuple(range(len(texts(nbest)))), (None,) * len(texts(nbest))) for nbest in lists
    ]
    again = read(write(tmp_path / "out", "nemo", nothing), "nemo", manifest=MANIFEST)
    assert list(map(texts, again)) == list(map(texts, lists))
    assert {value for nbest in again for value in values(nbest, "first_pass")} == {None}


def test_a_table_is_read_again_under_the_name_of_its_input(tmp_path):
    (again,) = read(write(tmp_path / "out.tsv", "csv", [PARTLY_SCORED], added=("mlm",)))
    assert texts(again) == ["c", "", "a"]


def test_srilm_lists_are_in_a_folder_of_their_own(tmp_path):
    lists = read(SAMPLES / "srilm")
    written = write(tmp_path / "out", "srilm", map(worst_first, lists), added=("mlm",))
    assert [texts(nbest) for nbest in read(written / "nbest")] == [texts(nbest)[::-1] for nbest in lists]


def test_the_best_of_kaldi_are_keyed_text(tmp_path):
    written = write(tmp_path / "out", "kaldi", [PARTLY_SCORED], added=("mlm",))
    assert [texts(nbest) for nbest in read(written / "text", "keyed")] == [["c"]]


@pytest.mark.parametrize("format", FORMATS_WITH_FEATURES)
def test_a_hypothesis_without_an_added_score_has_none_again(format, tmp_path):
    (again,) = read(write(tmp_path / "out", format, [PARTLY_SCORED], added=("mlm",)), format)
    assert values(again, "mlm") == [-0.5, None, None]


def test_kaldi_keeps_the_costs_that_were_added(tmp_path):
    once = write(tmp_path / "once", "kaldi", [PARTLY_SCORED], added=("mlm",))
    (again,) = read(once)
    assert values(again, "mlm") == [None, None, -0.5]
    twice = write(tmp_path / "twice", "kaldi", [worst_first(again, "other")], added=("other",))
    assert (twice / "lmwt.mlm").read_bytes() == (once / "lmwt.mlm").read_bytes()
    assert values(*read(twice), "other") == [0.0, -0.5, -1.0]
    (once / "lmwt.mlm").write_text("0-1 -x\n0-3 2\n")
    with pytest.raises(InputError, match=r"^lmwt.mlm, line 1: the cost of '0-1' is '-x'"):
        read(once)


@pytest.mark.parametrize("format", FORMATS_THAT_TELL)
def test_the_first_pass_outlives_rescoring_twice(format, tmp_path):
    once = read(write(tmp_path / "once", format, [PARTLY_SCORED], added=("mlm",)), format)
    assert values(once[0], "first_pass") == [-3.0, -2.0, -1.0]
    twice = read(write(tmp_path / "twice", format, (worst_first(nbest, None) for nbest in once)), format)
    assert values(twice[0], "first_pass") == [-1.0, -2.0, -3.0]


@pytest.mark.parametrize("format", FORMATS_WITH_FEATURES)
def test_missing_features_leave_hypotheses_where_they_are(format, tmp_path):
    weights = Weights((FIRST_PASS, Term("feature", "mlm", 1.0)))
    (again,) = read(write(tmp_path / "out", format, [PARTLY_SCORED], added=("mlm",)), format)
    (rescored,) = Rescorer([], weights).rescore_lists([again])
    assert rescored.order == (0, 1, 2)
    assert rescored.scores[1:] == (None, None)
    (third,) = read(write(tmp_path / "again", format, [rescored]), format)
    assert (texts(third), values(third, "mlm")) == (["c", "", "a"], [-0.5, None, None])


WITHOUT = '{"text": "", "score": -1}'
WITH = '{"text": "b", "score": -2, "lm": -3}'


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("jsonl", f'{{"id": "u", "hypotheses": [{WITHOUT}, {WITH}]}}'),
        ("mlm-scoring", f'{{"u": {{"hyp_1": {WITHOUT}, "hyp_2": {WITH}}}}}'),
        ("csv", "id,text,score,lm\nu,,-1,\nu,b,-2,-3\n"),
    ],
)
def test_a_feature_that_one_hypothesis_lacks_is_missing_there(format, text, tmp_path):
    (nbest,) = read_text(tmp_path, text, format)
    assert (values(nbest, "first_pass"), values(nbest, "lm")) == ([-1.0, -2.0], [None, -3.0])


def test_a_total_that_is_no_number_is_still_an_error(tmp_path):
    path = tmp_path / "lists"
    path.write_text("id,text,first_pass\nu,a,\nu,b,none\n")
    (nbest,), (error,) = skipped(path, "csv")
    assert values(nbest, "first_pass") == [None]
    assert error.line == 3
    with pytest.raises(InputError, match="column 'first_pass' is 'none'"):
        read(path, "csv")


def test_first_pass_stands_in_the_json_only_where_the_total_is_another(tmp_path):
    written = json.loads(write(tmp_path / "out", "mlm-scoring", [worst_first(NBEST)]).read_text())["0"]
    assert [written[f"hyp_{n}"].get("first_pass") for n in (1, 2, 3)] == [-3.0, None, -1.0]
    assert [written[f"hyp_{n}"]["score"] for n in (1, 2, 3)] == [-1.0, -2.0, -3.0]


class TestNames:
    @pytest.mark.parametrize("format", ["mlm-scoring", "jsonl", "csv", "moses", "kaldi", "espnet", "srilm"])
    @pytest.mark.parametrize(
        "name", ["text", "score", "first_pass", "", "a b", "a=", "|||", "a:b", "../a", "a/b", "1", "a\n"]
    )
    def test_no_format_takes_these(self, format, name, tmp_path):
        output = tmp_path / "out"
        output.write_text("precious")
        with pytest.raises(SettingsError, match="cannot name a score"):
            open_lists(output, format, settings=SETTINGS, added=("mlm", name))
        assert output.read_text() == "precious"

    @pytest.mark.parametrize(
        ("format", "name"),
        [("csv", "id"), ("csv", "reference"), ("moses", "F0"), ("kaldi", "withlm"), ("espnet", "token"),
         ("srilm", "nbest")],
    )  # fmt: skip
    def test_names_of_the_format_itself(self, format, name, tmp_path):
        with pytest.raises(SettingsError, match=f"it is something else in {format} lists"):
            open_lists(tmp_path / "out", format, settings=SETTINGS, added=(name,))

    @pytest.mark.parametrize(
        ("source", "format", "name"),
        [
            ("speech.json", "mlm-scoring", "lm_score"),
            ("kaldi", "kaldi", "lm"),
            ("srilm", "srilm", "acoustic"),
        ],
    )
    def test_no_score_of_the_lists_is_replaced(self, source, format, name, tmp_path):
        nbest = read(SAMPLES / source, format)[0]
        with open_lists(tmp_path / "out", format, settings=SETTINGS, added=(name,)) as output:
            with pytest.raises(SettingsError, match=f"{name!r} already"):
                output.skip(nbest)
            with pytest.raises(SettingsError, match=f"{name!r} already"):
                output.write(worst_first(nbest, name))

    def test_nor_is_a_text_of_the_json(self, tmp_path):
        (nbest,) = read_text(
            tmp_path, '{"u": {"hyp_1": {"score": -1, "text": "a", "voice": "b"}}}', "mlm-scoring"
        )
        with pytest.raises(SettingsError, match="'voice' already"):
            write(tmp_path / "out", "mlm-scoring", [worst_first(nbest, "voice")], added=("voice",))

    @pytest.mark.parametrize("format", FORMATS_WITH_FEATURES)
    def test_only_scores_of_an_earlier_run_are_replaced(self, format, tmp_path):
        source = write(tmp_path / "once", format, [PARTLY_SCORED], added=("mlm",))
        (nbest,) = read(source, format)
        new = RescoredList(nbest, (0, 1, 2), (-9.0, None, -8.0), {"mlm": (-6.0, None, -5.0)})
        with pytest.raises(SettingsError, match="'mlm' already"):
            write(tmp_path / "other", format, [new], added=("mlm",), source=source)
        write_meta(source, Meta({"models": {"mlm": {}}}, Progress()))
        if format == "moses":  # its lines stay as they are
            with pytest.raises(SettingsError, match="'mlm' already"):
                write(tmp_path / "twice", format, [new], added=("mlm",), source=source)
            return
        (again,) = read(write(tmp_path / "twice", format, [new], added=("mlm",), source=source), format)
        assert values(again, "mlm") == [-6.0, None, -5.0]
