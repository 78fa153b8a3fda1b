"""Writing: resumed after a kill at any moment, to a folder, to standard output, empty lists, misuse."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from list_files import SAMPLES, SETTINGS, read, texts, worst_first, write, write_back

from mlmfast.errors import OutputError, SettingsError
from mlmfast.io.meta import read_meta
from mlmfast.rescoring import Hypothesis, NBestList, RescoredList, first_pass_order, open_lists

LISTS = [worst_first(nbest) for nbest in read(SAMPLES / "speech.json")]


def run(path, format, lists, *, resume=False, stop_after=None, finish=True):
    """Writes the lists; `stop_after` of them are safe on disk when the run breaks off."""
    written = 0
    with open_lists(path, format, settings=SETTINGS, added=("mlm",), resume=resume) as output:
        for rescored in lists:
            if output.skip(rescored.nbest):
                continue
            if written == stop_after:
                return
            output.write(rescored, {"lists": written})
            written += 1
        if finish:
            output.finish({"done": True})


@pytest.mark.parametrize("format", ["mlm-scoring", "jsonl", "csv", "moses", "nemo"])
@pytest.mark.parametrize("stop_after", [0, 1, 2, 3])
def test_a_killed_run_continues_to_the_same_bytes(format, stop_after, tmp_path):
    run(tmp_path / "whole", format, LISTS)
    run(tmp_path / "cut", format, LISTS, stop_after=stop_after, finish=False)
    assert not read_meta(tmp_path / "cut").progress.complete
    run(tmp_path / "cut", format, LISTS, resume=True)
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes()
    assert read_meta(tmp_path / "cut").progress.complete
    run(tmp_path / "cut", format, LISTS, resume=True)  # complete: nothing to do
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_run_killed_between_the_end_and_its_meta_continues(tmp_path):
    """The closing brace is a record of its own, so that it is never written twice."""
    run(tmp_path / "whole", "mlm-scoring", LISTS)
    with open_lists(tmp_path / "cut", "mlm-scoring", settings=SETTINGS) as output:
        for rescored in LISTS:
            output.write(rescored)
        output._output.write("\n}\n", "")
    assert read_meta(tmp_path / "cut").progress.records == len(LISTS) + 1
    run(tmp_path / "cut", "mlm-scoring", LISTS, resume=True)
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes()


def test_other_lists_are_not_continued(tmp_path):
    run(tmp_path / "cut", "jsonl", LISTS, stop_after=1, finish=False)
    with pytest.raises(OutputError, match="the input differs"):
        run(tmp_path / "cut", "jsonl", LISTS[::-1], resume=True)


def test_a_folder_is_new_and_complete_at_its_end(tmp_path):
    folder = tmp_path / "out"
    run(folder, "kaldi", LISTS, finish=False)
    assert not read_meta(folder).progress.complete
    with pytest.raises(OutputError, match="has files in it"):
        run(folder, "kaldi", LISTS)
    run(tmp_path / "new", "kaldi", LISTS)
    meta = read_meta(tmp_path / "new")
    assert (meta.settings, meta.progress.records, meta.progress.complete) == (SETTINGS, 3, True)
    assert meta.summary == {"done": True}


def test_a_folder_of_many_lists_is_written_in_parts(tmp_path):
    lists = [NBestList(f"u{n}", (Hypothesis(1, f"text {n}", {"first_pass": -1.0}),)) for n in range(2500)]
    write_back(tmp_path / "out", "kaldi", lists)
    assert [nbest.id for nbest in read(tmp_path / "out")] == [nbest.id for nbest in lists]


@pytest.mark.parametrize(("path", "resume"), [("-", False), ("out", True)])
def test_a_folder_cannot_be_resumed_or_streamed(path, resume, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match="are a folder"):
        open_lists(path, "espnet", settings=SETTINGS, resume=resume)


@pytest.mark.parametrize("name", ["../mlm", "/mlm"])
def test_no_score_is_written_outside_of_the_folder(name, tmp_path):
    with pytest.raises(OutputError, match="outside"):
        write(tmp_path / "out", "srilm", [worst_first(LISTS[0].nbest, name)])
    assert [path.name for path in tmp_path.iterdir() if path.name != "out"] == ["out.meta.json"]


def test_standard_output():
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from list_files import read, SAMPLES, SETTINGS; from mlmfast.rescoring import *\n"
        "with open_lists('-', 'mlm-scoring', settings=SETTINGS) as output:\n"
        "    for nbest in read(SAMPLES / 'speech.json'): output.write(first_pass_order(nbest))\n"
        "    output.finish({})"
    )
    folder = str(SAMPLES.parents[1] / "rescoring" / "formats")
    done = subprocess.run(
        [sys.executable, "-c", program, folder], capture_output=True, check=True, timeout=120
    )
    assert json.loads(done.stdout) == json.loads((SAMPLES / "speech.json").read_text())


@pytest.mark.parametrize(
    "format", ["mlm-scoring", "jsonl", "csv", "moses", "nemo", "kaldi", "espnet", "srilm"]
)
def test_a_list_without_hypotheses_can_be_written(format, tmp_path):
    empty = NBestList("empty", (), ("reference",))
    written = write_back(tmp_path / "out", format, [LISTS[0].nbest, empty, LISTS[1].nbest])
    assert written.exists()
    if format in ("mlm-scoring", "jsonl"):
        again = read(written, format)[1]
        assert (again.id, again.hypotheses, again.references) == ("empty", (), ("reference",))


WITHOUT_NUL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
"""What a table may hold."""


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(WITHOUT_NUL, st.floats(-1e6, 0)), min_size=1, max_size=5),
    WITHOUT_NUL,
)
def test_any_list_goes_through_json_and_tables(tmp_path_factory, hypotheses, id):
    folder = tmp_path_factory.mktemp("lists")
    nbest = NBestList(
        id, tuple(Hypothesis(n, text, {"first_pass": score}) for n, (text, score) in enumerate(hypotheses, 1))
    )
    for format in ("mlm-scoring", "jsonl", "csv"):
        (again,) = read(write_back(folder / format, format, [nbest]), format)
        assert (again.id, texts(again)) == (nbest.id, texts(nbest)), format
        assert [h.features["first_pass"] for h in again.hypotheses] == [
            h.features["first_pass"] for h in nbest.hypotheses
        ]


class TestRescoredList:
    NBEST = NBestList(
        "u", (Hypothesis(1, "a", {"first_pass": -1.0}), Hypothesis(2, "b", {"first_pass": -2.0}))
    )

    @pytest.mark.parametrize("order", [(0,), (0, 0), (1, 2), (0, 1, 2)])
    def test_an_order_that_loses_a_hypothesis_is_refused(self, order):
        with pytest.raises(SettingsError, match="'u' has 2 hypotheses"):
            RescoredList(self.NBEST, order, (-1.0, -2.0))

    def test_scores_are_one_for_each(self):
        with pytest.raises(SettingsError, match="'scores' has 1 values"):
            RescoredList(self.NBEST, (0, 1), (-1.0,))
        with pytest.raises(SettingsError, match="'mlm' has 3 values"):
            RescoredList(self.NBEST, (0, 1), (-1.0, -2.0), {"mlm": (None, None, None)})

    def test_the_first_pass_as_it_is(self):
        rescored = first_pass_order(self.NBEST)
        assert (rescored.order, rescored.scores, rescored.features) == ((0, 1), (-1.0, -2.0), {})
