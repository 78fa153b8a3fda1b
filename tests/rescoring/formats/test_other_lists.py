"""fairseq logs, NeMo beams and tables."""

from __future__ import annotations

import math
import random

import pytest
from list_files import MANIFEST, SAMPLES, numbers, read, read_text, skipped, texts, totals, worst_first, write

from mlmfast.errors import InputError, OutputError, SettingsError
from mlmfast.rescoring import read_lists

LOG = (SAMPLES / "fairseq.log").read_text()
LN2 = math.log(2)


class TestFairseq:
    def test_base_2_averages_become_natural_sums(self):
        first, second = read(SAMPLES / "fairseq.log")
        assert (first.id, first.references) == ("0", ("good day .",))
        assert texts(first) == ["good day .", ""]
        assert totals(first) == pytest.approx([-1.0 * LN2, -2.0 * LN2])
        assert texts(second) == ["the house is old .", "the home is old ."]
        assert totals(second) == pytest.approx([-3.5 * LN2, -4.5 * LN2])
        assert second.hypotheses[0].features["first_pass_normalized"] == pytest.approx(-0.5 * LN2)
        assert second.flags == ("gap:1",)

    def test_without_p_lines_the_tokens_of_h_undo_the_average(self, tmp_path):
        log = "".join(line for line in LOG.splitlines(keepends=True) if line[0] != "P")
        for nbest, other in zip(
            read_text(tmp_path, log, "fairseq"), read(SAMPLES / "fairseq.log"), strict=True
        ):
            assert totals(nbest) == pytest.approx(totals(other))
        (_, nbest) = read(tmp_path / "lists", length_power=2.0)
        assert totals(nbest)[0] == pytest.approx(-0.5 * LN2 * 7**2)

    def test_without_d_lines_the_text_is_that_of_h(self, tmp_path):
        log = "".join(line for line in LOG.splitlines(keepends=True) if line[0] != "D")
        assert texts(read_text(tmp_path, log, "fairseq")[1])[0] == "the house is ol@@ d ."

    def test_lines_in_any_order(self, tmp_path):
        """Those of one kind and sentence keep theirs, as sorting by number and kind does."""
        lines = LOG.splitlines(keepends=True)
        expected = read(SAMPLES / "fairseq.log")
        kinds = {}
        for line in lines:
            kinds.setdefault(line.split("\t")[0], []).append(line)
        for seed in range(5):
            keys = [line.split("\t")[0] for line in lines]
            random.Random(seed).shuffle(keys)
            places = {key: iter(group) for key, group in kinds.items()}
            shuffled = read_text(tmp_path, "".join(next(places[key]) for key in keys), "fairseq")
            assert [(n.id, n.hypotheses, n.references) for n in shuffled] == [
                (n.id, n.hypotheses, n.references) for n in expected
            ]

    def test_a_sentence_without_hypotheses_is_still_there(self, tmp_path):
        lists = read_text(tmp_path, "S-0\ta\nS-1\tb\nH-1\t-1\tc\n", "fairseq")
        assert [(nbest.id, len(nbest.hypotheses)) for nbest in lists] == [("0", 0), ("1", 1)]

    @pytest.mark.parametrize(
        ("old", "new", "reason", "left"),
        [
            ("H-2\t-0.75\t", "H-2\t-0.75 ", "^line 7: .*'score<tab>text'", [1]),
            ("H-2\t-0.75\t", "H-2\t-0.7x5\t", "^line 7: the score is '-0.7x5'", [1]),
            ("P-2\t-1.0000 ", "P-2\t-1.0000-", "^line 9: a token's score", [1]),
            ("P-2\t-1.0000 -1.0000 -0.5000 -0.5000 -0.5000 -1.0000\n", "", "2 H lines, but 1 P lines", []),
            ("D-2\t-0.75\tthe home is old .\n", "", "2 H lines, but 1 D lines", []),
        ],
    )
    def test_a_bad_line_is_named(self, old, new, reason, left, tmp_path):
        assert LOG.count(old) == 1
        with pytest.raises(InputError, match=reason):
            read_text(tmp_path, LOG.replace(old, new), "fairseq")
        lists, errors = skipped(tmp_path / "lists", "fairseq")
        assert len(errors) == 1
        assert [numbers(nbest) for nbest in lists] == [[1, 2], left]


class TestNemo:
    def test_lines_are_shared_out_by_the_manifest(self):
        first, second = read(SAMPLES / "nemo_beams.tsv", manifest=MANIFEST)
        assert (first.id, first.references) == ("LJ001-0002.wav", ("in being comparatively modern",))
        assert (first.line, second.line) == (1, 5)
        assert numbers(second) == [1, 2, 3, 4]

    def test_lines_are_counted(self, tmp_path):
        lines = (SAMPLES / "nemo_beams.tsv").read_text().splitlines(keepends=True)
        (tmp_path / "beams.tsv").write_text("".join(lines[:-1]))
        with pytest.raises(InputError, match=r"7 lines for the 2 utterances .* utterances x beam width"):
            read(tmp_path / "beams.tsv", manifest=MANIFEST)

    def test_a_manifest_is_needed_and_a_file(self):
        with pytest.raises(SettingsError, match="--manifest"):
            read(SAMPLES / "nemo_beams.tsv")
        with (
            (SAMPLES / "nemo_beams.tsv").open("rb") as stream,
            pytest.raises(SettingsError, match="name the file"),
        ):
            list(read_lists(stream, "nemo", manifest=MANIFEST))

    def test_segments_of_one_recording_are_told_apart(self, tmp_path):
        (tmp_path / "m.json").write_text(
            '{"audio_filepath": "a.wav", "offset": 0.5}\n{"audio_filepath": "a.wav"}\n'
        )
        lists = read_text(tmp_path, "x\t-1\ny\t-2\n", "nemo", manifest=tmp_path / "m.json")
        assert [nbest.id for nbest in lists] == ["a.wav#0.5", "a.wav"]

    @pytest.mark.parametrize(
        ("line", "reason"),
        [("glued-2.5", "'glued-2.5', where 'text<tab>score'"), ("a\tb", "the score is 'b'")],
    )
    def test_a_bad_line_is_named(self, line, reason, tmp_path):
        (tmp_path / "m.json").write_text('{"audio_filepath": "a"}\n{"audio_filepath": "b"}\n')
        (tmp_path / "lists").write_text(f"\t-1\nx\t-2\ny\t-1\n{line}\n")
        with pytest.raises(InputError, match=f"^line 4: {reason}"):
            read(tmp_path / "lists", "nemo", manifest=tmp_path / "m.json")
        lists, errors = skipped(tmp_path / "lists", "nemo", manifest=tmp_path / "m.json")
        assert [texts(nbest) for nbest in lists] == [["", "x"], ["y"]]
        assert len(errors) == 1

    def test_a_bad_manifest_is_named(self, tmp_path):
        (tmp_path / "m.json").write_text('{"audio_filepath": "a"}\n{"audio": "b"}\n')
        with pytest.raises(InputError, match=r"^m\.json, line 2: no string 'audio_filepath'"):
            read_text(tmp_path, "x\t-1\ny\t-2\n", "nemo", manifest=tmp_path / "m.json")

    def test_new_totals_in_the_new_order(self, tmp_path):
        first, _ = read(SAMPLES / "nemo_beams.tsv", manifest=MANIFEST)
        lines = write(tmp_path / "out", "nemo", [worst_first(first)]).read_text().splitlines()
        assert lines == [f"{text}\t{-n}.0" for n, text in enumerate(texts(first)[::-1], 1)]


class TestTables:
    TABLE = 'id,text,first_pass,lm,reference,speaker\nu1,"a, b",-1.5,-3,r,s\nu1,,-2,-4,r,s\nu2,c,-1,-2,,\n'

    def test_features_references_and_other_columns(self, tmp_path):
        first, second = read_text(tmp_path, self.TABLE, "csv")
        assert texts(first) == ["a, b", ""]
        assert first.hypotheses[0].features == {"first_pass": -1.5, "lm": -3.0}
        assert (first.references, second.references) == (("r",), ())
        assert (first.line, second.line) == (2, 4)

    def test_numbers_order_the_hypotheses(self, tmp_path):
        (nbest,) = read_text(tmp_path, "id,number,text,score\nu,10,j,-9\nu,2,b,-2\nu,1,a,-1\n", "csv")
        assert (texts(nbest), numbers(nbest)) == (["a", "b", "j"], [1, 2, 10])
        assert nbest.flags == ("hypothesis_gap:7",)

    def test_tabs(self, tmp_path):
        (tmp_path / "lists.tsv").write_text("id\ttext\tscore\nu\ta,b\t-1\n")
        assert texts(read(tmp_path / "lists.tsv")[0]) == ["a,b"]

    @pytest.mark.parametrize(
        ("table", "reason"),
        [
            ("", "^line 1: the table is empty"),
            ("id,text\n", "^line 1: the header has 'id', 'text'; needed are"),
            ("id,text,text,score\n", "each column once"),
            ("id,text,score\nu,a\n", "^line 2: 2 columns, but the header has 3"),
            ("id,text,score\nu,a,b\n", "^line 2: no number 'first_pass' or 'score'"),
            ("id,text,first_pass\nu,a,b-1\n", "^line 2: column 'first_pass' is 'b-1'"),
            ("id,text,score,number\nu,a,-1,x\n", "^line 2: column 'number' is 'x'"),
            ("id,text,score,number\nu,a,-1,1\nu,b,-1,1\n", "^line 3: list 'u' has hypothesis 1 twice"),
            ('id,text,score\nu,"a"b,-1\n', "^line 2: not valid CSV"),
        ],
    )
    def test_bad_tables(self, table, reason, tmp_path):
        with pytest.raises(InputError, match=reason):
            read_text(tmp_path, table, "csv")

    def test_a_round_trip(self, tmp_path):
        lists = read_text(tmp_path, self.TABLE, "csv")
        path = write(tmp_path / "out.csv", "csv", map(worst_first, lists), added=("mlm",))
        assert path.read_text().splitlines()[:2] == [
            "id,text,reference,score,first_pass,lm,mlm",
            "u1,,r,-1.0,-2.0,-4.0,-0.5",
        ]
        for nbest, other in zip(lists, read(path), strict=True):
            assert (other.id, other.references) == (nbest.id, nbest.references)
            assert texts(other) == texts(nbest)[::-1]
            features = {
                **nbest.hypotheses[0].features,
                "mlm": 0.0,
                "score": -1.0 * len(nbest.hypotheses),
            }
            assert other.hypotheses[-1].features == {
                name: value for name, value in features.items() if not math.isnan(value)
            }

    def test_lists_of_other_features_are_refused(self, tmp_path):
        lists = read(SAMPLES / "decipher")
        with pytest.raises(
            OutputError, match=r"'two' has the features \['acoustic', 'lm'\], which the first"
        ):
            write(tmp_path / "out", "csv", map(worst_first, lists), added=("mlm",))
