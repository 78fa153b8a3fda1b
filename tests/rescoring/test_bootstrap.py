"""Paired bootstrap: blocks, intervals and p-values."""

from __future__ import annotations

import numpy as np
import pytest
from sacrebleu.significance import PairedTest

from mlmfast.errors import InputError, SettingsError
from mlmfast.rescoring.bootstrap import Blocks, blocks_of, compare, confidence_interval, resampled_sums
from mlmfast.rescoring.metrics import ErrorRate, metric_named
from mlmfast.types import Int64Array

METRIC = ErrorRate()


def utterances(count: int) -> Blocks:
    return blocks_of([f"u{number}" for number in range(count)])


def edits(values: list[int] | Int64Array) -> Int64Array:
    return np.stack([np.array(values), np.full(len(values), 10)], axis=1).astype(np.int64)


def test_two_equal_systems_do_not_differ() -> None:
    rows = edits([1, 2, 3, 4])
    result = compare(METRIC, rows, rows, utterances(4))
    assert (result.gain, result.interval, result.p_value, result.share_better) == (0.0, (0.0, 0.0), 1.0, 0.0)


def test_a_clear_gain() -> None:
    rng = np.random.default_rng(0)
    worse = rng.integers(3, 8, 200)
    better = worse - rng.integers(0, 3, 200)
    result = compare(METRIC, edits(worse), edits(better), utterances(200))
    assert result.gain == result.value_a - result.value_b == pytest.approx(10 * np.mean(worse - better))
    assert result.interval[0] < result.gain < result.interval[1]
    # The interval of a mean of independent differences: 1.96 standard errors to both sides.
    half = 1.96 * 10 * np.std(worse - better) / np.sqrt(200)
    assert result.interval == pytest.approx((result.gain - half, result.gain + half), abs=0.15 * half)
    assert (result.p_value, result.share_better) == (1 / 1001, 1.0)
    assert (result.num_blocks, result.unit) == (200, "utterance")
    assert compare(METRIC, edits(better), edits(worse), utterances(200)).gain == -result.gain


def test_p_values_of_no_difference_are_uniform() -> None:
    rng = np.random.default_rng(1)
    values = [
        compare(
            METRIC,
            *(edits(rng.integers(0, 9, 50)) for _ in range(2)),
            utterances(50),
            num_resamples=200,
            seed=seed,
        ).p_value
        for seed in range(150)
    ]
    assert 0.4 < np.mean(values) < 0.6
    assert np.mean(np.array(values) < 0.05) < 0.12


def test_bleu_against_sacrebleu() -> None:
    rng = np.random.default_rng(2)
    words = np.array(["a", "b", "c", "d", "e"])
    references = [" ".join(rng.choice(words, 12)) for _ in range(100)]

    def noisy(share: float) -> list[str]:
        return [
            " ".join("x" if rng.random() < share else word for word in reference.split())
            for reference in references
        ]

    first, second = noisy(0.20), noisy(0.18)
    metric = metric_named("bleu")
    rows = [
        np.concatenate(
            [metric.statistics([text], [ref]) for text, ref in zip(system, references, strict=True)]
        )
        for system in (first, second)
    ]
    result = compare(metric, rows[0], rows[1], utterances(100), num_resamples=4000)
    test = PairedTest(
        [("first", first), ("second", second)],
        {"BLEU": metric_named("bleu")._sacrebleu},  # type: ignore[attr-defined]
        references=[references],
        test_type="bs",
        n_samples=4000,
    )
    theirs = test()[1]["BLEU"][1]
    assert result.value_b == pytest.approx(theirs.score)
    assert result.p_value == pytest.approx(theirs.p_value, abs=0.05)


def test_the_same_seed_gives_the_same_result() -> None:
    rows = edits([1, 5, 2, 8, 0]), edits([2, 3, 2, 5, 1])
    assert compare(METRIC, *rows, utterances(5), seed=3) == compare(METRIC, *rows, utterances(5), seed=3)
    assert compare(METRIC, *rows, utterances(5), seed=3) != compare(METRIC, *rows, utterances(5), seed=4)


def test_blocks_are_drawn_whole() -> None:
    blocks = Blocks(np.array([0, 1, 0, 1]), "speaker")
    sums = resampled_sums(edits([1, 10, 2, 20]), blocks, 100, seed=0)
    assert set(sums[:, 0].tolist()) == {6, 33, 60}
    assert set(sums[:, 1].tolist()) == {40}


def test_fewer_than_two_blocks_are_refused() -> None:
    with pytest.raises(InputError, match="1 utterance: a bootstrap needs at least 2"):
        compare(METRIC, edits([1]), edits([2]), utterances(1))
    with pytest.raises(InputError, match="0 utterance: a bootstrap needs at least 2"):
        confidence_interval(METRIC, edits([]), utterances(0))


def test_systems_on_different_lists_are_refused() -> None:
    with pytest.raises(SettingsError, match="expected two systems on the same lists"):
        compare(METRIC, edits([1, 2]), edits([2]), utterances(2))


def test_resamples_without_reference_words_are_refused() -> None:
    rows = edits([1, 2, 3])
    rows[1:, 1] = 0
    with pytest.raises(InputError, match="no reference text"):
        compare(METRIC, rows, rows, utterances(3))
    with pytest.raises(InputError, match="no reference text"):
        confidence_interval(METRIC, rows, utterances(3))


def test_confidence_interval_of_one_system() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 9, 400)
    low, high = confidence_interval(METRIC, edits(values), utterances(400), num_resamples=2000)
    half = 1.96 * 10 * np.std(values) / 20
    assert (low, high) == pytest.approx(
        (10 * values.mean() - half, 10 * values.mean() + half), abs=0.15 * half
    )


LIBRISPEECH = [
    f"{speaker}-{chapter}-{number:04}" for speaker in range(61, 73) for chapter in (1, 2) for number in (0, 1)
]


def test_speakers_in_ids() -> None:
    blocks = blocks_of(LIBRISPEECH)
    assert (blocks.unit, blocks.num_blocks) == ("speaker", 12)
    assert blocks.index[:9].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2]


@pytest.mark.parametrize(
    "ids",
    [
        [f"utt_{number}" for number in range(40)],
        [f"{number}-a" for number in range(40)],
        [*LIBRISPEECH, "jfk"],
        ["0", "1"],
        [],
    ],
    ids=["one prefix", "all different", "an id without", "numbers", "none"],
)
def test_ids_without_speakers(ids: list[str]) -> None:
    blocks = blocks_of(ids)
    assert (blocks.unit, blocks.num_blocks) == ("utterance", len(ids))


def test_speaker_pattern() -> None:
    blocks = blocks_of(["x1_b", "x2_a", "x1_c"], r".(\d)_")
    assert (blocks.unit, blocks.index.tolist()) == ("speaker", [0, 1, 0])
    with pytest.raises(InputError, match=r"list 'y': the speaker pattern '.*' does not fit this id"):
        blocks_of(["x1_b", "y"], r".(\d)_")
    with pytest.raises(SettingsError, match=r"expected a group"):
        blocks_of(["x1_b"], r"x\d")
    with pytest.raises(SettingsError, match="speaker pattern"):
        blocks_of(["x1_b"], "(")
