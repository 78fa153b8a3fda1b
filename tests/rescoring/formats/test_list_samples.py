"""Every sample is read whole, best first, and written back as it was."""

from __future__ import annotations

import filecmp
import math
from pathlib import Path

import pytest
from list_files import SAMPLE_FORMATS, SAMPLES, numbers, read, texts, totals, worst_first, write, write_back

from mlmfast.rescoring import FORMATS, detect_format

WRITTEN = [sample for sample in SAMPLE_FORMATS if FORMATS[sample[1]].written_as is None]
COUNTS = {
    "speech.json": (3, 36),
    "beams.nobpe": (2, 4),
    "kaldi": (3, 36),
    "espnet": (3, 9),
    "nemo_beams.tsv": (2, 8),
    "marian/aligned.nbest": (2, 6),
    "marian/gnmt.nbest": (2, 12),
    "marian/nematus.nbest": (2, 10),
    "marian/normalized.nbest": (3, 15),
    "marian/scorer_input.nbest": (3, 15),
    "marian/scorer_output.nbest": (3, 15),
    "fairseq.log": (2, 4),
    "srilm": (1, 8),
    "decipher": (2, 5),
    "slf": (1, 100),
    "ami/AMI-3E0501_u3005_134168_134318.lat.gz": (1, 100),
}


@pytest.mark.parametrize(("name", "format", "options"), SAMPLE_FORMATS)
def test_a_sample_is_recognised_and_read_whole(name, format, options):
    assert detect_format(SAMPLES / name) == format
    lists = read(SAMPLES / name, **options)
    assert (len(lists), sum(len(nbest.hypotheses) for nbest in lists)) == COUNTS[name]
    for nbest in lists:
        assert numbers(nbest) == list(range(1, len(nbest.hypotheses) + 1))
        for hypothesis in nbest.hypotheses:
            assert all(map(math.isfinite, hypothesis.features.values()))
            assert all(type(value) is float for value in hypothesis.features.values())
            assert hypothesis.features["first_pass"] < 0


@pytest.mark.parametrize(("name", "format", "options"), SAMPLE_FORMATS)
def test_the_order_of_a_sample_is_that_of_its_first_pass(name, format, options):
    for nbest in read(SAMPLES / name, **options):
        assert "unordered" not in nbest.flags, nbest.id


def test_speech_lists_are_the_same_in_every_format():
    lists = {
        name: {nbest.id.removesuffix(".wav"): nbest for nbest in read(SAMPLES / name, **options)}
        for name, _, options in SAMPLE_FORMATS
        if name in ("speech.json", "kaldi", "espnet", "nemo_beams.tsv", "srilm")
    }
    for name, others in lists.items():
        for id, nbest in others.items():
            speech = lists["speech.json"][id]
            count = len(nbest.hypotheses)
            assert texts(nbest) == texts(speech)[:count], name
            assert totals(nbest) == pytest.approx(totals(speech)[:count], abs=2e-3), name
            assert nbest.references in ((), speech.references)


def same_files(one: Path, other: Path) -> bool:
    if one.is_file():
        return one.read_bytes() == other.read_bytes()
    names = sorted(str(path.relative_to(one)) for path in one.rglob("*") if path.is_file())
    assert names
    return filecmp.cmpfiles(one, other, names, shallow=False)[0] == names


@pytest.mark.parametrize(("name", "format", "options"), WRITTEN)
def test_what_is_written_back_unchanged_is_the_same_to_the_byte(name, format, options, tmp_path):
    written = write_back(tmp_path / "out", format, read(SAMPLES / name, **options))
    if format == "srilm":
        assert sorted(path.name for path in (written / "nbest").iterdir()) == sorted(
            path.name.removesuffix(".nbest") for path in (SAMPLES / name).iterdir()
        )
        for path in (SAMPLES / name).iterdir():
            assert same_files(path, written / "nbest" / path.name.removesuffix(".nbest"))
    elif format == "mlm-scoring":
        # mlm-scoring sorts by name, hyp_10 before hyp_2; ours is by number.
        assert sorted(map(by_content, written.read_text().splitlines())) == sorted(
            map(by_content, (SAMPLES / name).read_text().splitlines())
        )
    else:
        assert same_files(SAMPLES / name, written)


def by_content(line: str) -> str:
    return line.rstrip(",")


TARGETS = ["jsonl", "csv", "mlm-scoring", "moses", "kaldi", "espnet", "srilm", "nemo"]


@pytest.mark.parametrize(
    ("name", "options", "target"),
    [
        (name, options, target)
        for name, _, options in SAMPLE_FORMATS
        for target in TARGETS
        if name != "decipher" or target not in ("csv", "nemo")  # its two lists are of different shapes
    ],
)
def test_any_sample_can_be_written_in_any_format(name, options, target, tmp_path):
    lists = read(SAMPLES / name, **options)
    written = write(tmp_path / "out", target, map(worst_first, lists), added=("mlm",))
    source = written / "nbest" if target == "srilm" else written
    again_options = {"manifest": manifest_of(lists, tmp_path)} if target == "nemo" else {}
    again = {nbest.id: nbest for nbest in read(source, target, **again_options)}
    assert again.keys() == {nbest.id for nbest in lists}
    for nbest in lists:
        order = texts(nbest) if target == "kaldi" else texts(nbest)[::-1]
        assert texts(again[nbest.id]) == order


def manifest_of(lists, folder: Path) -> Path:
    path = folder / "manifest.json"
    path.write_text("".join(f'{{"audio_filepath": "{nbest.id}"}}\n' for nbest in lists))
    return path
