"""The file of the teacher's scores: what it holds, goes on from, is reused for, and refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from distillation_runs import LINES, corpus_of, teacher

from mlmfast.errors import InputError, OutputError
from mlmfast.training.distillation import teacher as module
from mlmfast.training.distillation.corpus import Corpus
from mlmfast.training.distillation.teacher import TeacherScores, describe_teacher, sums_of

TEXTS = [*LINES[:5], "a", *LINES[5:8]]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(module, "CHUNK_TEXTS", 2)


@pytest.fixture
def corpus() -> Corpus:
    return corpus_of(TEXTS)


def cache(path: Path, corpus: Corpus, masking: str = "original", name: str = "bert") -> TeacherScores:
    return TeacherScores(path, corpus, describe_teacher(teacher(name), masking))


def compute(path: Path, corpus: Corpus, masking: str = "original") -> list[tuple[int, int]]:
    told = []
    cache(path, corpus, masking).compute(teacher(), masking, lambda *counts: told.append(counts))
    return told


def test_what_it_holds(tmp_path, corpus):
    path = tmp_path / "folder" / "train.f32"
    told = compute(path, corpus)
    assert (sum(t for t, _ in told), sum(n for _, n in told)) == (corpus.num_tokens.sum(), len(TEXTS))
    values = np.fromfile(path, "<f4")
    expected = [
        value
        for result in teacher().score(TEXTS)
        for value in [np.nan, *(token.log_prob for token in result.tokens), np.nan]
    ]
    np.testing.assert_array_equal(values, np.array(expected, np.float32))
    np.testing.assert_array_equal(cache(path, corpus).read(), values)
    assert sums_of(values, corpus) == pytest.approx([r.score for r in teacher().score(TEXTS)])
    meta = json.loads((path.parent / "train.f32.meta.json").read_text("utf-8"))
    assert meta["progress"]["complete"]
    assert meta["settings"]["masking"] == "original"
    assert meta["settings"]["teacher"]["weights_sha256"] == teacher().files.checkpoint.checksum()
    assert meta["settings"]["texts"] == corpus.describe()


def test_a_finished_file_is_reused(tmp_path, corpus):
    path = tmp_path / "train.f32"
    compute(path, corpus)
    before = path.stat().st_mtime_ns
    assert compute(path, corpus) == []
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("num_bytes", [0, 3, 4, 500, 2001, 10**6])
def test_cut_anywhere_it_goes_on_with_the_same_bits(tmp_path, corpus, num_bytes):
    whole, path = tmp_path / "whole.f32", tmp_path / "train.f32"
    compute(whole, corpus)

    class Death(BaseException):
        pass

    def die(*_: int) -> None:
        raise Death

    with pytest.raises(Death):
        cache(path, corpus).compute(teacher(), "original", die)
    path.write_bytes(whole.read_bytes()[:num_bytes])
    told = compute(path, corpus)
    assert path.read_bytes() == whole.read_bytes()
    assert told[0][0] == 0
    assert sum(n for _, n in told) == len(TEXTS)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"masking": "whole_word"}, 'masking: "original", now "whole_word"'),
        ({"name": "roberta"}, "teacher.weights_sha256: .*, now "),
        ({"corpus": TEXTS[1:]}, "texts.texts: 9, now 8"),
        ({"corpus": [*TEXTS[:-1], "b"]}, "texts.sha256: .*, now "),
    ],
)
def test_another_teachers_or_other_texts_are_refused(tmp_path, corpus, changed, message):
    path = tmp_path / "train.f32"
    compute(path, corpus)
    other = {**changed, "corpus": corpus_of(changed.get("corpus", TEXTS))}
    with pytest.raises(OutputError, match=message):
        cache(path, **other)


def test_a_strangers_file_is_refused(tmp_path, corpus):
    (tmp_path / "train.f32").write_bytes(b"1234")
    with pytest.raises(OutputError, match="may not be ours"):
        cache(tmp_path / "train.f32", corpus)


def test_a_file_in_the_place_of_the_folder(tmp_path, corpus):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(OutputError, match=r"cannot write .*file/train\.f32"):
        cache(tmp_path / "file" / "train.f32", corpus)


@pytest.mark.parametrize("damage", ["short", "zeros", "not a number"])
def test_a_damaged_file_is_refused(tmp_path, corpus, damage):
    path = tmp_path / "train.f32"
    compute(path, corpus)
    values = np.fromfile(path, "<f4")
    if damage == "short":
        values = values[:-1]
    else:
        values[-1 if damage == "zeros" else 1] = 0.0 if damage == "zeros" else np.nan
    values.tofile(path)
    with pytest.raises(OutputError, match="changed or cut short"):
        cache(path, corpus).read()


def test_a_text_the_teacher_refuses_is_named(tmp_path):
    corpus = corpus_of(["a", "\u6f22\u5b57" * 10])
    refused = teacher().score(list(corpus.texts), "whole_word", on_error="skip")
    corpus = replace(corpus, texts=("a", "b " * 100))
    assert refused[0].error is None
    with pytest.raises(InputError, match="the teacher cannot score 'b b b"):
        compute(tmp_path / "train.f32", corpus)


def test_other_tokens_than_the_corpus_has_are_noticed(tmp_path):
    corpus = corpus_of(["we the people"])
    with pytest.raises(InputError, match="scored other tokens"):
        compute(tmp_path / "train.f32", replace(corpus, texts=("people the we",)))
