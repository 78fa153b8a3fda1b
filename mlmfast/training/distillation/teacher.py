"""The teacher's log-probabilities of a corpus, kept in a file: computed once, for any number of students."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mlmfast.errors import InputError, OutputError
from mlmfast.io.meta import Meta, Progress, meta_path, read_meta, settings_differences, write_meta
from mlmfast.io.output import open_locked, os_errors_named, write_all
from mlmfast.scorer import Scorer
from mlmfast.training.distillation.corpus import Corpus
from mlmfast.types import Float32Array, JsonRecord

CHUNK_TEXTS = 1024
"""Texts scored at once. A stopped run goes on after whole chunks, so that it makes the same batches."""

Advance = Callable[[int, int], None]
"""Told of tokens scored and texts done."""


class TeacherScores:
    """The file `path` of one corpus: little-endian float32 log-probabilities in nats, one for every token in
    the corpus's order, NaN for a special one; beside it `path`.meta.json says how they were made."""

    def __init__(self, path: Path, corpus: Corpus, settings: JsonRecord) -> None:
        """settings: as `describe` gives them. Raises OutputError if the file is another's."""
        self.path = path
        self._corpus = corpus
        self._settings: JsonRecord = {**settings, "texts": corpus.describe()}
        with os_errors_named(path):
            meta = read_meta(path)
        if meta is None and path.exists() and path.stat().st_size:
            raise OutputError(
                f"{path} has no {meta_path(path).name} beside it, so it may not be ours; move it away"
            )
        differences = settings_differences(meta.settings, self._settings) if meta is not None else []
        if differences:
            raise OutputError(
                f"{path} holds scores of other texts or another teacher ({'; '.join(differences)}); give "
                "another folder for the teacher's scores, or delete the file to score anew"
            )
        self.is_complete = meta is not None and meta.progress.complete

    def compute(self, scorer: Scorer, masking: str, advance: Advance) -> None:
        """Scores what the file does not hold yet. Raises OutputError, InputError for a text that the teacher
        refuses."""
        if self.is_complete:
            return
        with os_errors_named(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open_locked(self.path) as file:
                self._go_on(file, scorer, masking, advance)
        self.is_complete = True

    def read(self) -> Float32Array:
        """float32[N]. Raises OutputError if the file is not whole or not what it should be."""
        with os_errors_named(self.path):
            values = np.fromfile(self.path, dtype="<f4").astype(np.float32)
        expected = len(self._corpus.scored)
        if len(values) != expected or not np.array_equal(np.isfinite(values), self._corpus.scored):
            raise OutputError(
                f"{self.path} does not hold a log-probability for each of the {expected} tokens that is not "
                "special: it was changed or cut short; delete it to score anew"
            )
        return values

    def _go_on(self, file: IO[bytes], scorer: Scorer, masking: str, advance: Advance) -> None:
        corpus = self._corpus
        if not meta_path(self.path).exists():
            write_meta(self.path, Meta(self._settings, Progress()))
        chunks = range(0, corpus.num_texts, CHUNK_TEXTS)
        ends = np.array([corpus.offsets[min(s + CHUNK_TEXTS, corpus.num_texts)] for s in chunks])
        num_there = os.fstat(file.fileno()).st_size // 4
        num_whole = int(np.searchsorted(ends, num_there, side="right"))
        done = int(ends[num_whole - 1]) if num_whole else 0
        file.truncate(4 * done)
        file.seek(4 * done)
        advance(0, min(num_whole * CHUNK_TEXTS, corpus.num_texts))
        for start in chunks[num_whole:]:
            part = corpus.subset(np.arange(start, min(start + CHUNK_TEXTS, corpus.num_texts)))
            write_all(file, chunk_scores(scorer, part, masking, advance).astype("<f4").tobytes())
        os.fsync(file.fileno())
        progress = Progress(
            records=corpus.num_texts,
            bytes=4 * len(corpus.scored),
            input_sha256=self._settings["texts"]["sha256"],
            complete=True,
        )
        write_meta(self.path, Meta(self._settings, progress))


def chunk_scores(scorer: Scorer, corpus: Corpus, masking: str, advance: Advance) -> Float32Array:
    """float32[N], the log-probability of every scored token, NaN at the others."""
    values = np.full(len(corpus.scored), np.nan, dtype=np.float32)
    places = np.split(np.flatnonzero(corpus.scored), np.cumsum(corpus.num_tokens)[:-1])
    results = scorer.score_iter(corpus.texts, masking, on_error="skip")
    for text, tokens, result in zip(corpus.texts, places, results, strict=True):
        if result.error is not None:
            raise InputError(f"the teacher cannot score {text!r:.60}: {result.error}")
        if result.columns is not None:
            if not np.array_equal(result.columns.ids, corpus.input_ids[tokens]):
                raise InputError(
                    f"the teacher scored other tokens of {text!r:.60} than the student will read"
                )
            values[tokens] = result.columns.log_probs
        advance(len(tokens), 1)
    return values


def describe_teacher(scorer: Scorer, masking: str) -> JsonRecord:
    """What its scores depend on; "environment": what it was called by."""
    description: dict[str, Any] = scorer.describe()
    environment = {name: description.pop(name) for name in ("model", "revision")}
    return {"environment": environment, "teacher": description, "masking": masking}


def sums_of(values: Float32Array, corpus: Corpus) -> NDArray[np.float64]:
    """float64[S], each text's sum over its scored tokens."""
    terms = np.where(corpus.scored, values, 0.0).astype(np.float64)
    return np.bincount(corpus.text_of_token, terms, corpus.num_texts).astype(np.float64)
