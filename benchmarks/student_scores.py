"""Scores of texts as columns, kept in a folder so that a teacher scores them once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from student_material import Part

import mlmfast
from mlmfast.types import Float32Array, Int64Array, JsonRecord

Float64Array = NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """totals float64[S] in nats, NaN where a text has none; num_tokens int64[S]; log_probs float32[N] of the
    texts' tokens, or None where a scorer gives none."""

    totals: Float64Array
    num_tokens: Int64Array
    log_probs: Float32Array | None

    @property
    def per_token(self) -> Float64Array:
        """float64[S], NaN for a text without tokens."""
        return self.totals / np.where(self.num_tokens > 0, self.num_tokens, np.nan)

    @classmethod
    def of_tokens(cls, log_probs: NDArray[np.floating], num_tokens: Int64Array) -> Scores:
        """From what each token got: totals are their sums, in float64."""
        ends = np.cumsum(num_tokens)
        sums = np.concatenate([[0.0], np.cumsum(log_probs, dtype=np.float64)])
        totals = np.where(num_tokens > 0, sums[ends] - sums[ends - num_tokens], np.nan)
        return cls(totals, num_tokens, log_probs.astype(np.float32))


@dataclass(frozen=True)
class Judged:
    """A way to score texts: its name in tables, all that its scores depend on, and how it is done."""

    name: str
    settings: JsonRecord
    score: Callable[[Part], Scores]


def scorer_judged(name: str, scorer: mlmfast.Scorer, masking: str) -> Judged:
    described = scorer.describe()
    settings = {key: described[key] for key in ("weights_sha256", "engine", "precision")}
    return Judged(
        name, {**settings, "masking": masking}, lambda part: scores_by_scorer(scorer, part, masking)
    )


def scores_by_scorer(scorer: mlmfast.Scorer, part: Part, masking: str) -> Scores:
    results = [result for group in scorer.score_groups(part.groups, masking) for result in group]
    num_tokens = np.array([result.num_tokens for result in results], dtype=np.int64)
    columns = [result.columns.log_probs for result in results if result.columns is not None]
    totals = np.array([np.nan if result.score is None else result.score for result in results])
    has_tokens = sum(map(len, columns)) == num_tokens.sum()
    return Scores(
        totals, num_tokens, np.concatenate([np.zeros(0, np.float32), *columns]) if has_tokens else None
    )


def cached_scores(folder: Path, judged: Judged, part: Part) -> Scores:
    """The scores in the folder, if it has those of these settings and texts; else computed and put there."""
    key = json.dumps([judged.settings, part.groups], sort_keys=True)
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()}.npz"
    if path.exists():
        with np.load(path) as stored:
            return Scores(stored["totals"], stored["num_tokens"], stored.get("log_probs"))
    scores = judged.score(part)
    folder.mkdir(parents=True, exist_ok=True)
    log_probs = {} if scores.log_probs is None else {"log_probs": scores.log_probs}
    with (partial := path.with_suffix(".part")).open("wb") as out:
        np.savez(out, allow_pickle=False, totals=scores.totals, num_tokens=scores.num_tokens, **log_probs)
    partial.replace(path)
    return scores
