"""Significance of a difference by paired bootstrap (Koehn 2004), over utterances or speakers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlmfast.errors import InputError, SettingsError
from mlmfast.rescoring.metrics import Metric
from mlmfast.rescoring.normalisation import Float64Array
from mlmfast.types import Int64Array

SPEAKER = re.compile(r"([^-_]+)[-_]")
"""What stands before the first - or _, as Kaldi and LibriSpeech name utterances."""

MIN_SPEAKERS = 10


@dataclass(frozen=True)
class Blocks:
    """What is drawn together. index int64[L], the block of each of L lists, from 0; unit: `utterance` or
    `speaker`."""

    index: Int64Array
    unit: str

    @property
    def num_blocks(self) -> int:
        return int(self.index.max()) + 1 if len(self.index) else 0


@dataclass(frozen=True)
class Comparison:
    """System b against system a. gain: how much better b is (for an error rate, a - b); interval: its central
    95% over the resamples; p_value: two-sided, of a gain as large in either direction if there were none,
    from the resamples shifted to mean 0 (Riezler & Maxwell 2005, section 3); share_better: of the resamples
    those in which b is better."""

    value_a: float
    value_b: float
    gain: float
    interval: tuple[float, float]
    p_value: float
    share_better: float
    num_resamples: int
    num_blocks: int
    unit: str


def blocks_of(ids: Sequence[str], speaker: str | None = None) -> Blocks:
    """Lists of one speaker as a block, where the ids name speakers.

    speaker: a regular expression whose first group is the speaker (searched from the start of an id);
    without one, what stands before the first `-` or `_` if every id has one, and there are at least 10
    speakers, fewer than utterances; otherwise every utterance is a block. Raises SettingsError for an
    expression that is wrong, InputError for an id it does not fit.
    """
    if speaker is None:
        matches = [SPEAKER.match(name) for name in ids]
        names = [match[1] for match in matches if match]
        if len(names) < len(ids) or not MIN_SPEAKERS <= len(set(names)) < len(ids):
            return Blocks(np.arange(len(ids)), "utterance")
    else:
        names = [speaker_in(name, speaker) for name in ids]
    numbers: dict[str, int] = {}
    index = [numbers.setdefault(name, len(numbers)) for name in names]
    return Blocks(np.array(index, dtype=np.int64), "speaker")


def speaker_in(utterance: str, pattern: str) -> str:
    try:
        match = re.match(pattern, utterance)
    except re.error as error:
        raise SettingsError(f"speaker pattern {pattern!r}: {error}") from error
    if match is None:
        raise InputError(f"the speaker pattern {pattern!r} does not fit this id", where=f"list {utterance!r}")
    if not match.re.groups:
        raise SettingsError(f"speaker pattern {pattern!r}: expected a group (...) around the speaker")
    return str(match[1])


def compare(
    metric: Metric,
    statistics_a: Int64Array,
    statistics_b: Int64Array,
    blocks: Blocks,
    *,
    num_resamples: int = 1000,
    seed: int = 0,
) -> Comparison:
    """Two systems on the same L lists, statistics int64[L, K] each.

    Raises InputError with fewer than two blocks, or if a resample leaves nothing to count.
    """
    if statistics_a.shape != statistics_b.shape or len(statistics_a) != len(blocks.index):
        raise SettingsError(
            f"statistics of shapes {statistics_a.shape} and {statistics_b.shape} over {len(blocks.index)} "
            "lists: expected two systems on the same lists"
        )
    sign = 1.0 if metric.larger_is_better else -1.0
    both = np.stack([statistics_a, statistics_b], axis=1)
    sums = resampled_sums(both, blocks, num_resamples, seed)
    value_a, value_b = (float(value) for value in metric.value(both.sum(axis=0)))
    values = defined(metric.value(sums))
    gains = sign * (values[:, 1] - values[:, 0])
    gain = value_b - value_a if metric.larger_is_better else value_a - value_b
    extreme = np.count_nonzero(np.abs(gains - gains.mean()) >= abs(gain))
    return Comparison(
        value_a,
        value_b,
        gain,
        central_interval(gains),
        (1 + int(extreme)) / (1 + num_resamples),
        float(np.mean(gains > 0)),
        num_resamples,
        blocks.num_blocks,
        blocks.unit,
    )


def confidence_interval(
    metric: Metric, statistics: Int64Array, blocks: Blocks, *, num_resamples: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Central 95% of one system's metric over resamples of its L lists, statistics int64[L, K].

    Raises InputError with fewer than two blocks, or if a resample leaves nothing to count.
    """
    values = metric.value(resampled_sums(statistics, blocks, num_resamples, seed))
    return central_interval(defined(values))


def defined(values: Float64Array) -> Float64Array:
    if np.isnan(values).any():
        raise InputError("some resamples hold no reference text to compare with; use more utterances")
    return values


def central_interval(values: Float64Array) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def resampled_sums(statistics: Int64Array, blocks: Blocks, num_resamples: int, seed: int) -> Int64Array:
    """int64[num_resamples, ...]: sums of the statistics int64[L, ...] over blocks drawn with replacement."""
    if blocks.num_blocks < 2:
        raise InputError(f"{blocks.num_blocks} {blocks.unit}: a bootstrap needs at least 2")
    block_sums = np.zeros((blocks.num_blocks, *statistics.shape[1:]), dtype=np.int64)
    np.add.at(block_sums, blocks.index, statistics)
    rng = np.random.default_rng(seed)
    return np.stack(
        [
            block_sums[rng.integers(blocks.num_blocks, size=blocks.num_blocks)].sum(axis=0)
            for _ in range(num_resamples)
        ]
    )
