"""What holds for all formats: detection, ids, references, errors, options."""

from __future__ import annotations

import gzip
import io
import json

import pytest
from list_files import MANIFEST, SAMPLES, read, read_text, skipped, texts

from mlmfast.errors import InputError, SettingsError
from mlmfast.rescoring import FORMATS, detect_format, read_lists, read_references


def moses(*ids: object) -> str:
    return "".join(f"{id} ||| text of {id} ||| F0= -1 ||| -1\n" for id in ids)


class TestDetection:
    @pytest.mark.parametrize(
        ("name", "content", "expected"),
        [
            ("a", "0 ||| a ||| F0= -1 ||| -1\n", "moses"),
            ("a", "\ufeff0 ||| a ||| -1\r\n", "moses"),
            ("a.txt", "2020-01-01 | INFO | x\nS-1\ta\nH-1\t-1\tb\n", "fairseq"),
            ("a.json", '{\n "u": {\n  "hyp_1": {}}}', "mlm-scoring"),
            ("a", '{"id": "a", "hypotheses": []}\n', "jsonl"),
            ("a.csv", "text,id,score\n", "csv"),
            ("a.tsv", "id\ttext\tfirst_pass\n", "csv"),
            ("a.tsv", "some words\t-1.5\n", "nemo"),
            ("a", "\t-1.5\n", "nemo"),
            ("a", "NBestList1.0\n(-1) a\n", "srilm"),
            ("a", "-1.5 -2.5 2 a b\n", "srilm"),
            ("a", "-1.5 -2.5 0\n", "srilm"),
            ("a", "# made by\nVERSION=1.0\n", "htk"),
            ("a", "NODES=2 LINKS=1\n", "htk"),
            ("a.nobpe", "anything -1 -2\n", "nobpe"),
        ],
    )
    def test_by_name_and_content(self, name, content, expected, tmp_path):
        for path, data in (
            (tmp_path / name, content.encode()),
            (tmp_path / f"{name}.gz", gzip.compress(content.encode())),
        ):
            path.write_bytes(data)
            assert detect_format(path) == expected

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            ("plain text\n", "no n-best format that is recognised; name it with --format"),
            ("", "no n-best format"),
            ("1 2 3 4\t-5\n", "could be srilm or nemo; say which with --format"),
            ("P-0\t-0.5\n", "could be fairseq or nemo"),
        ],
    )
    def test_what_is_not_clear_is_refused(self, content, reason, tmp_path):
        (tmp_path / "a").write_text(content)
        with pytest.raises(InputError, match=reason):
            read_lists(tmp_path / "a")

    def test_folders(self, tmp_path):
        with pytest.raises(InputError, match="no n-best format"):
            detect_format(tmp_path)
        (tmp_path / "1best_recog").mkdir()
        (tmp_path / "1best_recog" / "text").write_text("")
        (tmp_path / "words_text").write_text("")
        with pytest.raises(InputError, match="could be espnet or kaldi"):
            detect_format(tmp_path)

    def test_a_stream_needs_its_format_named(self):
        with pytest.raises(SettingsError, match="--format"):
            read_lists(io.BytesIO(moses(0).encode()))
        assert len(read(io.BytesIO(moses(0).encode()), "moses")) == 1

    def test_a_missing_file(self, tmp_path):
        with pytest.raises(InputError, match="cannot read"):
            read_lists(tmp_path / "none")

    @pytest.mark.parametrize("format", ["kaldi", "espnet"])
    def test_a_file_for_a_folder(self, format):
        with pytest.raises(InputError, match="read from a folder"):
            read(SAMPLES / "speech.json", format)

    @pytest.mark.parametrize("format", ["srilm", "htk"])
    def test_lists_named_by_files_need_files(self, format):
        with pytest.raises(SettingsError, match="named by their files"):
            read(io.BytesIO(b""), format)


class TestIds:
    def test_gaps_are_flagged(self, tmp_path):
        lists = read_text(tmp_path, moses(2, 3, 7, 5, 6), "moses")
        assert [nbest.flags for nbest in lists] == [("gap:2",), (), ("gap:3",), (), ()]

    def test_names_have_no_gaps(self, tmp_path):
        lists = read_text(tmp_path, moses("b", "utt-9", "a"), "moses")
        assert [(nbest.id, nbest.flags) for nbest in lists] == [("b", ()), ("utt-9", ()), ("a", ())]

    def test_an_id_that_comes_back_is_named(self, tmp_path):
        with pytest.raises(InputError, match=r"^line 3: id '0' had its list at line 1 already"):
            read_text(tmp_path, moses(0, 1, 0), "moses")
        lists, errors = skipped(tmp_path / "lists", "moses")
        assert ([nbest.id for nbest in lists], len(errors)) == (["0", "1"], 1)

    def test_ids_are_not_numbers(self, tmp_path):
        assert [nbest.id for nbest in read_text(tmp_path, moses("01", "1"), "moses")] == ["01", "1"]

    def test_an_order_that_is_not_the_totals_is_flagged(self, tmp_path):
        text = "0 ||| a ||| A= -1 ||| -1\n0 ||| b ||| A= -1 ||| -1.000001\n0 ||| c ||| A= -1 ||| -0.9\n"
        assert read_text(tmp_path, text, "moses")[0].flags == ("unordered",)
        assert read_text(tmp_path, text.replace("-0.9\n", "-1.0\n"), "moses")[0].flags == ()


class TestReferences:
    def test_by_line_for_counted_ids(self, tmp_path):
        (tmp_path / "refs").write_text("zero\none\n\nthree\n")
        lists = read_text(tmp_path, moses(1, 0, 3), "moses", references=[tmp_path / "refs"])
        assert [(nbest.id, nbest.references, nbest.flags) for nbest in lists] == [
            ("1", ("one",), ("gap:1",)),
            ("0", ("zero",), ()),
            ("3", ("three",), ("gap:2",)),
            ("2", ("",), ("missing",)),
        ]

    def test_by_key_for_names_and_several_files(self, tmp_path):
        (tmp_path / "a").write_text("cards-002 one\nLJ001-0002\n")
        (tmp_path / "b").write_text("LJ001-0002 two\ncards-002 three words here\n")
        lists = {n.id: n for n in read(SAMPLES / "espnet", references=[tmp_path / "a", tmp_path / "b"])}
        assert lists["cards-002"].references == ("one", "three words here")
        assert lists["LJ001-0002"].references == ("", "two")
        assert lists["sb-spk1_snt6"].references == ()

    def test_they_replace_those_of_the_lists(self, tmp_path):
        (tmp_path / "a").write_text("cards-002 new\n")
        lists = {n.id: n for n in read(SAMPLES / "speech.json", references=[tmp_path / "a"])}
        assert lists["cards-002"].references == ("new",)
        assert lists["LJ001-0002"].references == ("in being comparatively modern",)

    def test_the_style_can_be_named(self, tmp_path):
        (tmp_path / "refs").write_text("u0 zero\n")
        lists = read_text(
            tmp_path, moses("u0"), "moses", references=[tmp_path / "refs"], reference_style="keyed"
        )
        assert lists[0].references == ("zero",)

    def test_bad_files(self, tmp_path):
        (tmp_path / "a").write_text("u one\nu two\n")
        (tmp_path / "b").write_text("v one\n\n")
        (tmp_path / "c").write_text("one\n")
        with pytest.raises(InputError, match=r"^a, line 2: 'u' has a reference already"):
            read_references([tmp_path / "a"], "keyed")
        with pytest.raises(InputError, match=r"^b, line 2: a blank line"):
            read_references([tmp_path / "b"], "keyed")
        with pytest.raises(InputError, match="references for different ids: '1' is in only one"):
            read_references([tmp_path / "a", tmp_path / "c"], "lines")
        assert read_references([], "lines") == {}


class TestErrorsAndOptions:
    def test_errors_stand_before_their_list(self, tmp_path):
        (tmp_path / "lists").write_text(moses(0) + "0 ||| x\n" + moses(1) + "no bars\n" + moses(2))
        items = list(read_lists(tmp_path / "lists", "moses", on_error="skip"))
        kinds = ["line " + str(item.line) if isinstance(item, InputError) else item.id for item in items]
        assert kinds == ["line 2", "0", "line 4", "1", "2"]

    def test_a_cut_file_is_raised_either_way(self, tmp_path):
        data = gzip.compress(moses(*range(5000)).encode())
        (tmp_path / "lists.gz").write_bytes(data[:-200])
        with pytest.raises(InputError, match="breaks off"):
            skipped(tmp_path / "lists.gz", "moses")

    def test_invalid_bytes_cost_one_line(self, tmp_path):
        (tmp_path / "lists").write_bytes(
            moses(0).encode() + b"0 ||| \xff ||| F0= -2 ||| -2\n" + moses(1).encode()
        )
        lists, errors = skipped(tmp_path / "lists", "moses")
        assert [texts(nbest) for nbest in lists] == [["text of 0"], ["text of 1"]]
        assert str(errors[0]).startswith("line 2: invalid UTF-8")

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"format": "mosess"}, "unknown list format 'mosess'; choose one of mlm-scoring"),
            ({"on_error": "ignore"}, "choose raise or skip"),
            ({"nbest": 5}, "nbest is for htk, not for mlm-scoring"),
            ({"lm_scale": 5.0}, "lm_scale is for kaldi, srilm, htk, not for"),
            ({"manifest": MANIFEST}, "manifest is for nemo"),
            ({"length_power": 1.0}, "length_power is for espnet, moses, fairseq"),
        ],
    )
    def test_options_that_do_not_fit(self, options, reason):
        with pytest.raises(SettingsError, match=reason):
            read_lists(SAMPLES / "speech.json", **options)

    @pytest.mark.parametrize("options", [{"nbest": 0}, {"lm_scale": float("nan")}])
    def test_options_out_of_range(self, options):
        with pytest.raises(SettingsError, match="give"):
            read_lists(SAMPLES / "slf", **options)

    def test_every_format_has_its_name_and_a_way_to_be_written(self):
        for name, format in FORMATS.items():
            assert format.name == name
            written = FORMATS[format.written_as] if format.written_as else format
            assert (written.write is None) != (written.write_files is None)
            assert format.options <= {"nbest", "lm_scale", "length_power", "manifest"}

    @pytest.mark.parametrize(
        ("format", "content"),
        [
            ("mlm-scoring", '{"u": {"hyp_1": {"score": -2, "text": "a"}}}'),
            ("nobpe", "a -0.5 -2\n"),
            ("moses", "0 ||| a ||| LM0= -1 ||| -2\n"),
            ("fairseq", "H-0\t-1\ta\nP-0\t-1.5 -0.5\n"),
            ("srilm", "-2 0 1 a\n"),
            ("jsonl", '{"id": "u", "hypotheses": [{"text": "a", "score": -2}]}'),
            ("csv", "id,text,score\nu,a,-2\n"),
        ],
    )
    def test_scores_are_read_by_the_scale_the_format_declares(self, format, content, tmp_path):
        (nbest,) = read_text(tmp_path, content, format)
        scale = FORMATS[format].scale
        features = nbest.hypotheses[0].features
        assert features["first_pass"] == pytest.approx(scale.natural(-2.0))
        assert scale.written(scale.natural(-2.0)) == pytest.approx(-2.0)
        assert ("first_pass_normalized" in features) == scale.length_normalized

    def test_costs_are_declared_as_such(self):
        assert FORMATS["kaldi"].scale.natural(3.0) == -3.0

    def test_lists_are_read_one_at_a_time(self):
        """A list comes as soon as the next one starts."""

        class Stream(io.RawIOBase):
            lines = iter([*moses(0, 0, 1).encode().splitlines(keepends=True)])

            def __next__(self):
                return next(self.lines)

        stream = Stream()
        lists = read_lists(stream, "moses")
        assert texts(next(lists)) == ["text of 0", "text of 0"]
        assert list(stream.lines) == []

    def test_json_sample_is_json(self):
        """The sample is what mlm-scoring itself would write."""
        value = json.loads((SAMPLES / "speech.json").read_text())
        again = json.dumps(value, indent=2, separators=(",", ": "), sort_keys=True) + "\n"
        assert again == (SAMPLES / "speech.json").read_text()
