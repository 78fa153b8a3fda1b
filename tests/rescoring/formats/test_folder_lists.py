"""Lists in folders: Kaldi's archives, ESPnet's results, SRILM's files."""

from __future__ import annotations

import math
import shutil

import pytest
from list_files import SAMPLES, numbers, read, skipped, texts, totals, worst_first, write

from mlmfast.errors import InputError, OutputError
from mlmfast.rescoring import Hypothesis, NBestList, first_pass_order, read_lists


def copied(name, folder):
    return shutil.copytree(SAMPLES / name, folder / name)


def change_line(path, line, text):
    """Replaces the 1-based line, or removes it if text is None."""
    lines = path.read_text().splitlines(keepends=True)
    lines[line - 1 : line] = [] if text is None else [text + "\n"]
    path.write_text("".join(lines))


class TestKaldi:
    def test_costs_are_turned_into_scores(self):
        nbest = read(SAMPLES / "kaldi")[0]
        assert nbest.hypotheses[0].features == pytest.approx(
            {"acoustic": -2749.1678, "lm": -44.1293, "first_pass": -2793.2971}
        )
        assert nbest.references == ("in being comparatively modern",)
        assert "unordered" in nbest.flags
        scaled = read(SAMPLES / "kaldi", lm_scale=6.5)[0]
        assert totals(scaled)[0] == pytest.approx(-2749.1678 - 6.5 * 44.1293)
        assert "unordered" not in scaled.flags

    def test_keys_order_by_number_and_not_by_text(self, tmp_path):
        """utterance-10 comes before utterance-2 in a sorted archive."""
        folder = copied("kaldi", tmp_path)
        lines = sorted((folder / "words_text").read_text().splitlines(keepends=True))
        assert lines[1].split()[0].endswith("-10")
        (folder / "words_text").write_text("".join(lines))
        for nbest, original in zip(read(folder), read(SAMPLES / "kaldi"), strict=True):
            assert numbers(nbest) == list(range(1, 13))
            assert texts(nbest) == texts(original)

    def test_names_of_kaldis_scripts_and_several_archives(self, tmp_path):
        for job, utterance in ((10, "b"), (2, "a")):
            folder = tmp_path / f"archives.{job}"
            folder.mkdir()
            (folder / "words_text").write_text(f"{utterance}-x-1 one two\n{utterance}-x-2\n")
            (folder / "acwt").write_text(f"{utterance}-x-1 3.5\n{utterance}-x-2 1e1\n")
            (folder / "lmwt.withlm").write_text(f"{utterance}-x-1 2\n{utterance}-x-2 3\n")
        lists = read(tmp_path)
        assert [(nbest.id, texts(nbest), totals(nbest)) for nbest in lists] == [
            ("a-x", ["one two", ""], [-5.5, -13.0]),
            ("b-x", ["one two", ""], [-5.5, -13.0]),
        ]

    @pytest.mark.parametrize(
        ("file", "line", "text", "reason"),
        [
            ("ac_cost", 2, None, "words_text, line 2: 'LJ001-0002-2' has no acoustic cost"),
            ("lm_cost", 3, "LJ001-0002-3 x", "lm_cost, line 3: the cost of 'LJ001-0002-3' is 'x'"),
            ("ac_cost", 2, "LJ001-0002-1 5", "ac_cost, line 2: 'LJ001-0002-1' comes twice"),
            (
                "words_text",
                2,
                "LJ001-0002-1 a",
                "words_text, line 2: list 'LJ001-0002' has hypothesis 1 twice",
            ),
            ("words_text", 2, "LJ001-0002-x a", "words_text, line 2: key 'LJ001-0002-x', where"),
            ("words_text", 2, "", "words_text, line 2: a blank line"),
        ],
    )
    def test_what_is_wrong_is_named(self, file, line, text, reason, tmp_path):
        folder = copied("kaldi", tmp_path)
        change_line(folder / file, line, text)
        with pytest.raises(InputError, match=f"^{reason}"):
            read(folder)
        lists, errors = skipped(folder)
        assert errors
        assert len(lists) == 3
        assert len(lists[0].hypotheses) == 11
        assert lists[0].flags[0] == "hypothesis_gap:1"

    def test_a_missing_file(self, tmp_path):
        folder = copied("kaldi", tmp_path)
        (folder / "lm_cost").unlink()
        with pytest.raises(InputError, match=r"neither lm_cost nor lmwt\.withlm"):
            read(folder)

    def test_new_scores_are_costs_under_the_old_keys(self, tmp_path):
        lists = read(SAMPLES / "kaldi", lm_scale=6.5)
        folder = write(tmp_path / "out", "kaldi", map(worst_first, lists))
        assert (folder / "lmwt.mlm").read_text().splitlines()[:2] == ["LJ001-0002-1 0.0", "LJ001-0002-2 0.5"]
        assert (folder / "text").read_text().splitlines() == [
            f"{nbest.id} {texts(nbest)[-1]}" for nbest in lists
        ]

    def test_an_id_that_is_no_key(self, tmp_path):
        nbest = NBestList("a b", (Hypothesis(1, "x", {"first_pass": -1.0}),))
        with pytest.raises(OutputError, match="'a b' is not one word"):
            write(tmp_path / "out", "kaldi", [first_pass_order(nbest)])


class TestEspnet:
    @pytest.mark.parametrize("inner", ["", "logdir", "logdir/output.1"])
    def test_any_folder_above_can_be_named(self, inner):
        lists = read(SAMPLES / "espnet" / inner)
        assert [numbers(nbest) for nbest in lists] == [[1, 2, 3]] * 3

    def test_plain_and_tensor_scores_and_tokens(self, tmp_path):
        for rank, score in ((1, "-1.5"), (2, "tensor(-2.5, device='cuda:0')"), (10, "tensor(-9.)")):
            folder = tmp_path / f"{rank}best_recog"
            folder.mkdir()
            (folder / "text").write_text(f"u text {rank}\n")
            (folder / "token").write_text(f"u te xt {rank}\n")
            (folder / "score").write_text(f"u {score}\n")
        with pytest.raises(InputError, match=r"ranks \[1, 2, 10\], where 1 to the last"):
            read(tmp_path)
        shutil.rmtree(tmp_path / "10best_recog")
        (nbest,) = read(tmp_path)
        assert totals(nbest) == [-1.5, -2.5]
        (nbest,) = read(tmp_path, length_power=1.0)
        assert nbest.hypotheses[0].features == {"first_pass": -6.0, "first_pass_normalized": -1.5}
        written = write(tmp_path / "out", "espnet", [worst_first(nbest)]) / "logdir" / "output.1"
        assert (written / "1best_recog" / "token").read_text() == "u te xt 2\n"
        assert (written / "1best_recog" / "score").read_text() == "u tensor(-1.0, device='cuda:0')\n"
        assert (written / "2best_recog" / "score").read_text() == "u -2.0\n"
        assert (written / "1best_recog" / "mlm").read_text() == "u -0.5\n"

    def test_jobs_in_natural_order_lists_of_their_own_lengths_and_empty_texts(self, tmp_path):
        for job, key in ((10, "c"), (2, "b"), (1, "a")):
            for rank in (1, 2):
                folder = tmp_path / "logdir" / f"output.{job}" / f"{rank}best_recog"
                folder.mkdir(parents=True)
                longer = f"{key}2 tensor(-{rank})\n" if rank == 1 else ""
                (folder / "text").write_text(f"{key} \n" + longer.replace("tensor", "word"))
                (folder / "score").write_text(f"{key} tensor(-{rank})\n" + longer)
        lists = read(tmp_path)
        assert [nbest.id for nbest in lists] == ["a", "a2", "b", "b2", "c", "c2"]
        assert [texts(nbest) for nbest in lists[:2]] == [["", ""], ["word(-1)"]]

    @pytest.mark.parametrize(
        ("file", "line", "text", "reason"),
        [
            (
                "1best_recog/score",
                2,
                "cards-002 tensor(x)",
                r"1best_recog/score, line 2: the score is 'x'",
            ),
            (
                "2best_recog/score",
                2,
                "cards-002tensor(-3.2)",
                "2best_recog/score, line 2: utterance .* where 'cards",
            ),
            (
                "3best_recog/score",
                3,
                None,
                "3best_recog/text, line 3: utterance .* is missing in the file score",
            ),
        ],
    )
    def test_what_is_wrong_is_named(self, file, line, text, reason, tmp_path):
        folder = copied("espnet", tmp_path)
        change_line(folder / "logdir/output.1" / file, line, text)
        with pytest.raises(InputError, match=f"^logdir/output.1/{reason}"):
            read(folder)
        lists, errors = skipped(folder)
        assert len(errors) == 1
        assert sorted(len(nbest.hypotheses) for nbest in lists) == [2, 3, 3]

    def test_ranks_of_different_runs(self, tmp_path):
        folder = copied("espnet", tmp_path)
        for name in ("text", "score"):
            change_line(folder / f"logdir/output.1/1best_recog/{name}", 2, None)
        with pytest.raises(
            InputError, match="2best_recog/text, line 2: utterance 'cards-002' is not in 1best"
        ):
            read(folder)

    def test_an_utterance_without_hypotheses_is_still_there(self, tmp_path):
        folder = write(tmp_path / "out", "espnet", [first_pass_order(NBestList("u", ()))])
        assert (folder / "logdir/output.1/1best_recog/text").read_text() == "u \n"


class TestSrilm:
    def test_base_10(self):
        (nbest,) = read(SAMPLES / "srilm", lm_scale=6.5)
        first, *_ = (SAMPLES / "srilm" / "LJ001-0002").read_text().split()
        assert nbest.id == "LJ001-0002"
        assert nbest.hypotheses[0].features["acoustic"] == pytest.approx(float(first) * math.log(10))
        assert texts(nbest)[0] == "him being comparatively mater"
        default = read(SAMPLES / "srilm")[0].hypotheses[0].features
        assert default["first_pass"] == pytest.approx(default["acoustic"] + 8 * default["lm"])

    def test_bytelogs(self):
        one, two = read(SAMPLES / "decipher")
        # SRILM: 10000.5 / 1024 bytelogs to a nat
        assert totals(one)[0] == pytest.approx(-9766 * 1024 / 10000.5)
        assert texts(one) == ["the cat sat", "a cat sat", ""]
        assert two.id == "two"
        assert texts(two) == ["the cat", "a cat"]
        features = two.hypotheses[0].features
        assert features["acoustic"] + features["lm"] == pytest.approx(features["first_pass"])
        assert features["lm"] == pytest.approx(-2766 * 1024 / 10000.5)

    @pytest.mark.parametrize(
        ("name", "line", "text", "reason"),
        [
            (
                "srilm/LJ001-0002",
                2,
                "-100.0 -20.0",
                "'-100.0 -20.0', where 'acoustic lm number-of-words words'",
            ),
            ("srilm/LJ001-0002", 2, "-100.0 -20.0x 3 a b c", "the language-model score is '-20.0x'"),
            ("srilm/LJ001-0002", 2, "-100.0-20.0 3 4 a b c", "the acoustic score is '-100.0-20.0'"),
            ("decipher/one", 2, "-9766 the cat", r"where '\(score\) words' was expected"),
            ("decipher/two.nbest", 2, "(-1) the ( st: 0 et: 1 g: 2 a: 3", "is not followed by"),
        ],
    )
    def test_a_bad_line_is_named(self, name, line, text, reason, tmp_path):
        folder = copied(name.split("/")[0], tmp_path)
        change_line(tmp_path / name, line, text)
        with pytest.raises(InputError, match=rf"^{name.split('/')[1]}, line 2: .*{reason}"):
            read(folder)
        lists, errors = skipped(folder)
        assert len(errors) == 1
        assert any(
            flag == "hypothesis_gap:1" or 1 not in numbers(nbest) for nbest in lists for flag in nbest.flags
        )

    def test_an_unknown_header(self, tmp_path):
        (tmp_path / "a").write_text("NBestList3.0\n(-1) a\n")
        with pytest.raises(InputError, match=r"a, line 1: header 'NBestList3.0'"):
            list(read_lists(tmp_path, "srilm"))

    def test_lines_best_first_and_scores_in_files_of_their_own(self, tmp_path):
        (nbest,) = read(SAMPLES / "srilm")
        folder = write(tmp_path / "out", "srilm", [worst_first(nbest)])
        lines = (SAMPLES / "srilm" / "LJ001-0002").read_text().splitlines()
        assert (folder / "nbest" / "LJ001-0002").read_text().splitlines() == lines[::-1]
        scores = [float(line) for line in (folder / "mlm" / "LJ001-0002").read_text().splitlines()]
        assert scores == pytest.approx([-0.5 * place / math.log(10) for place in reversed(range(len(lines)))])

    @pytest.mark.parametrize("id", ["a/b", "..", ""])
    def test_an_id_that_names_no_file(self, id, tmp_path):
        with pytest.raises(OutputError, match="cannot name a file"):
            write(tmp_path / "out", "srilm", [first_pass_order(NBestList(id, ()))])
