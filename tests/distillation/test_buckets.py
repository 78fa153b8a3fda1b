"""Batches of texts of one length: every text once an epoch, little padding, from seed and step alone."""

from __future__ import annotations

import numpy as np
import pytest

from mlmfast.training.distillation.buckets import Buckets

LENGTHS = np.random.default_rng(0).integers(3, 60, 500)


def epoch(buckets: Buckets, number: int) -> list[np.ndarray]:
    first = number * buckets.num_batches + 1
    return [buckets.batch(step) for step in range(first, first + buckets.num_batches)]


def test_an_epoch_has_every_text_once():
    buckets = Buckets(LENGTHS, 512, 0)
    for number in (0, 1, 2):
        assert sorted(np.concatenate(epoch(buckets, number))) == list(range(500))


def test_budget_and_padding():
    padded = [len(b) * LENGTHS[b].max() for b in epoch(Buckets(LENGTHS, 512, 0), 0)]
    assert max(padded) <= 512
    assert LENGTHS.sum() > 0.95 * sum(padded)


def test_a_text_longer_than_the_budget_is_a_batch_of_its_own():
    batches = epoch(Buckets(np.array([3, 100, 2]), 8, 0), 0)
    assert sorted(map(sorted, batches)) == [[0, 2], [1]]


def test_any_step_by_itself():
    """As a resumed run asks for it."""
    buckets = Buckets(LENGTHS, 512, 7)
    for step in (1, buckets.num_batches + 5, 2, 3 * buckets.num_batches):
        np.testing.assert_array_equal(Buckets(LENGTHS, 512, 7).batch(step), buckets.batch(step))


def test_epochs_and_seeds_differ():
    first = epoch(Buckets(LENGTHS, 512, 0), 0)
    assert [b.tolist() for b in first] != [b.tolist() for b in epoch(Buckets(LENGTHS, 512, 0), 1)]
    assert [b.tolist() for b in first] != [b.tolist() for b in epoch(Buckets(LENGTHS, 512, 1), 0)]


@pytest.mark.parametrize("budget", [1, 10**9])
def test_one_text(budget):
    buckets = Buckets(np.array([5]), budget, 0)
    assert buckets.num_batches == 1
    assert [buckets.batch(step).tolist() for step in (1, 2, 9)] == [[0]] * 3
