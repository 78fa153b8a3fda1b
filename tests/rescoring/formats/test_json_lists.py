"""mlm-scoring's JSON and .nobpe lists, and our JSON lines."""

from __future__ import annotations

import io
import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from list_files import (
    SAMPLES,
    numbers,
    read,
    read_text,
    skipped,
    texts,
    totals,
    worst_first,
    write,
    write_back,
)

from mlmfast.errors import InputError
from mlmfast.rescoring import Hypothesis, NBestList, RescoredList, read_lists
from mlmfast.rescoring.formats.json_stream import object_items


def utterance(*scores: float, ref: str | None = None) -> dict[str, object]:
    hypotheses = {f"hyp_{n}": {"score": score, "text": f"text {n}"} for n, score in enumerate(scores, 1)}
    return hypotheses if ref is None else {"ref": ref, **hypotheses}


class TestMlmScoring:
    def test_hypotheses_are_ordered_by_number(self):
        """The file has hyp_1, hyp_10, hyp_11, hyp_12, hyp_2, ..."""
        for nbest in read(SAMPLES / "speech.json"):
            assert numbers(nbest) == list(range(1, 13))
            assert totals(nbest) == sorted(totals(nbest), reverse=True)

    def test_references_and_other_numbers(self):
        lists = {nbest.id: nbest for nbest in read(SAMPLES / "speech.json")}
        assert lists["cards-002"].references == ("four queen of clubs",)
        assert lists["sb-spk1_snt6"].references == ()
        assert lists["cards-002"].hypotheses[0].features == {"first_pass": -2906.5811, "lm_score": -34.9156}

    def test_it_is_written_back_renumbered(self, tmp_path):
        lists = read(SAMPLES / "speech.json")
        written = json.loads(write(tmp_path / "out", "mlm-scoring", map(worst_first, lists)).read_text())
        assert list(written) == [nbest.id for nbest in lists]
        for nbest in lists:
            hypotheses = [written[nbest.id][f"hyp_{n}"] for n in range(1, 13)]
            assert [hypothesis["text"] for hypothesis in hypotheses] == texts(nbest)[::-1]
            assert [hypothesis["score"] for hypothesis in hypotheses] == [-1.0 * n for n in range(1, 13)]
            assert hypotheses[0]["lm_score"] == nbest.hypotheses[-1].features["lm_score"]
            assert hypotheses[0]["mlm"] == -5.5
            assert written[nbest.id].get("ref") == (nbest.references[0] if nbest.references else None)

    def test_a_missing_score_is_null(self, tmp_path):
        nbest = NBestList("a", (Hypothesis(1, "", {"first_pass": -1.0}),))
        written = write(tmp_path / "out", "mlm-scoring", [RescoredList(nbest, (0,), (None,))])
        assert json.loads(written.read_text()) == {
            "a": {"hyp_1": {"first_pass": -1.0, "score": None, "text": ""}}
        }

    def test_no_lists_at_all(self, tmp_path):
        assert read_text(tmp_path, "{}", "mlm-scoring") == []
        assert json.loads(write_back(tmp_path / "out", "mlm-scoring", []).read_text()) == {}

    @pytest.mark.parametrize(
        ("hypothesis", "reason"),
        [
            ({"text": "a"}, "no number 'first_pass' or 'score'"),
            ({"first_pass": "-1", "score": -1, "text": "a"}, "'first_pass' is '-1'"),
            ({"score": -1}, "'text' is None"),
            ({"score": "-1", "text": "a"}, "'score' is '-1'"),
            ({"score": True, "text": "a"}, "'score' is True"),
            ({"score": float("nan"), "text": "a"}, "'score' is nan"),
            ({"score": 10**400, "text": "a"}, "where a finite number"),
            ({"score": -1, "text": "\ud800"}, "lone surrogate"),
            ("a", "where an object with score and text"),
        ],
    )
    def test_a_bad_hypothesis_is_named(self, hypothesis, reason, tmp_path):
        content = {"u0": utterance(-1.0), "u1": {**utterance(-1.0, -2.0, -3.0), "hyp_2": hypothesis}}
        path = tmp_path / "lists.json"
        path.write_text(json.dumps(content, indent=1))
        with pytest.raises(InputError, match=rf"^line 8: utterance 'u1', hyp_2: .*{reason}"):
            read(path)
        lists, errors = skipped(path)
        assert [numbers(nbest) for nbest in lists] == [[1], [1, 3]]
        assert lists[1].flags == ("hypothesis_gap:1",)
        assert len(errors) == 1

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            (
                '{"u": {"hyp_1": {"score": -1, "text": "a"}, "hyp_1": {"score": -1, "text": "b"}}}',
                "each once",
            ),
            (
                '{"u": {"hyp_1": {"score": -1, "text": "a"}, "hyp_01": {"score": -1, "text": "b"}}}',
                "each once",
            ),
            ('{"u": {"hyp_0": {"score": -1, "text": "a"}}}', "count from 1"),
            ('{"u": [1]}', "where an object with hyp_1"),
            ('{"u": {},\n "u": {}}', "^line 2: id 'u' had its list at line 1 already"),
            ('{"u": {}', "'}' was expected, the end of the file came"),
            ('{"u": {}}\n{}', "^line 2: more text after the end"),
            ('{"u": {"hyp_1": ', "^line 1: not JSON"),
            ('{"u":\n {},\n "v" {}}', "^line 3: not JSON: ':' was expected, '{' came"),
            ("[1]", "'{' was expected, '\\[' came"),
            ("", "'{' was expected, the end of the file came"),
            ("{1: 2}", "a name in double quotes"),
        ],
    )
    def test_bad_json(self, text, reason, tmp_path):
        with pytest.raises(InputError, match=reason):
            read_text(tmp_path, text, "mlm-scoring")

    def test_bytes_that_are_no_text_are_placed(self):
        data = b'{"u": {},\n "v": {"ref": "\xff"}}'
        with pytest.raises(InputError, match=r"^line 2: invalid UTF-8: byte 0xff"):
            list(read_lists(io.BytesIO(data), "mlm-scoring"))

    def test_memory_is_that_of_an_utterance(self, tmp_path):
        path = tmp_path / "lists.json"
        with path.open("w") as file:
            one = json.dumps(utterance(*range(-1, -51, -1)))
            file.write("{" + ",".join(f'"u{n}": {one}' for n in range(800)) + "}")
        assert path.stat().st_size > 1.5e6
        tracemalloc.start()
        assert sum(1 for _ in read_lists(path)) == 800
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 6e5


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


class Trickle(io.RawIOBase):
    """A stream that gives a few bytes at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._stream = io.BytesIO(data)
        self._size = size

    def read(self, size: int = -1) -> bytes:
        return self._stream.read(self._size)


@settings(deadline=None)
@given(
    st.dictionaries(st.text(), json_values, max_size=5),
    st.sampled_from([None, 1]),
    st.integers(1, 40),
    st.booleans(),
)
def test_an_object_streams_as_json_reads_it(value, indent, size, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = json.dumps(value, indent=indent).encode()
    items = list(object_items(Trickle(data, size)))
    assert {name: content for _, name, content in items} == value
    for line, name, _ in items:
        assert json.dumps(name) in data.decode().split("\n")[line - 1] or not ascii_only


class TestNobpe:
    def test_sums_and_averages(self):
        first, second = read(SAMPLES / "beams.nobpe")
        assert (first.id, second.id) == ("0", "1")
        assert first.hypotheses[0].text == "the first sentence , translated ."
        assert first.hypotheses[0].features == {"first_pass": -30.0, "first_pass_normalized": -5.5}
        assert texts(second) == ["beams end here .", ""]

    def test_the_last_block_needs_no_blank_line(self, tmp_path):
        assert [texts(nbest) for nbest in read_text(tmp_path, "a -1 -2\n\nb -1 -2", "nobpe")] == [
            ["a"],
            ["b"],
        ]

    def test_a_sentence_without_hypotheses_is_one(self, tmp_path):
        lists = read_text(tmp_path, "a -1 -2\n\n\nb -1 -2\n\n", "nobpe")
        assert [(nbest.id, texts(nbest)) for nbest in lists] == [("0", ["a"]), ("1", []), ("2", ["b"])]

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("... gedi-25.58 -30", "the score -25.58 is glued to the word 'gedi'; put a space between"),
            ("word -30", "the normalised score is 'word'"),
            ("-30", "one field"),
            ("a -1 -x", "the score is '-x'"),
        ],
    )
    def test_a_bad_line_is_named(self, line, reason, tmp_path):
        path = tmp_path / "beams.nobpe"
        path.write_text(f"a -1 -2\n{line}\nc -3 -4\n\n")
        with pytest.raises(InputError, match=f"^line 2: .*{reason}"):
            read(path)
        lists, errors = skipped(path)
        assert [(texts(nbest), numbers(nbest)) for nbest in lists] == [(["a", "c"], [1, 3])]
        assert [error.line for error in errors] == [2]

    def test_it_is_written_as_mlm_scoring_does(self, tmp_path):
        written = write_back(tmp_path / "out", "nobpe", read(SAMPLES / "beams.nobpe"))
        assert json.loads(written.read_text())["1"]["hyp_1"] == {"score": -10.0, "text": "beams end here ."}


class TestJsonLines:
    def test_a_round_trip(self, tmp_path):
        lists = read(SAMPLES / "speech.json")
        again = read(write(tmp_path / "out.jsonl", "jsonl", map(worst_first, lists)))
        for nbest, other in zip(lists, again, strict=True):
            assert (other.id, other.references) == (nbest.id, nbest.references)
            assert texts(other) == texts(nbest)[::-1]
            assert other.hypotheses[0].features == {
                **nbest.hypotheses[-1].features,
                "mlm": -5.5,
                "score": -1.0,
            }

    def test_a_total_may_be_called_score(self, tmp_path):
        (nbest,) = read_text(tmp_path, '{"id": 7, "hypotheses": [{"text": "a", "score": -1}]}', "jsonl")
        assert nbest.id == "7"
        assert nbest.hypotheses[0].features == {"first_pass": -1.0}

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("", "not JSON"),
            ("[]", "an object with 'id'"),
            ('{"id": true, "hypotheses": []}', "an object with 'id'"),
            ('{"id": "b"}', "list 'b' has no 'hypotheses'"),
            ('{"id": "b", "hypotheses": [{"text": "a"}]}', "hypothesis 1: no number 'first_pass' or 'score'"),
            ('{"id": "b", "hypotheses": [{"score": 1}]}', "hypothesis 1: an object with 'text'"),
            ('{"id": "b", "hypotheses": [{"text": "\\ud800", "score": 1}]}', "lone surrogate"),
            ('{"id": "\\ud800", "hypotheses": []}', "lone surrogate"),
        ],
    )
    def test_a_bad_line_is_named(self, line, reason, tmp_path):
        good = '{"id": "a", "hypotheses": []}'
        with pytest.raises(InputError, match=f"^line 2: .*{reason}"):
            read_text(tmp_path, f"{good}\n{line}\n", "jsonl")
