"""What is masked, how often, and with what."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from training_runs import LINES, rows_of, tiny_files

from mlmfast.training import MaskingSettings
from mlmfast.training.batches import MASKS, random_of, rows_of_step
from mlmfast.training.masking import Vocabulary, masked_batch

ROWS = rows_of([*LINES, "people"])
ALL = np.arange(ROWS.num_rows)
VOCABULARY = Vocabulary.of(tiny_files().tokenizer)
SPECIAL = tiny_files().tokenizer.special

shares = st.tuples(st.floats(0.05, 1), st.floats(0, 1), st.floats(0, 1)).map(
    lambda drawn: MaskingSettings(drawn[0], drawn[1], (1 - drawn[1]) * drawn[2])
)
seeds = st.integers(0, 2**32)


def masked(masking: MaskingSettings, seed: int, indices=ALL):
    return masked_batch(ROWS, indices, masking, VOCABULARY, np.random.default_rng(seed))


@given(shares, st.booleans(), seeds, st.lists(st.integers(0, ROWS.num_rows - 1), min_size=1, max_size=8))
def test_only_targets_change_and_they_are_ordinary_tokens(masking, whole_word, seed, indices):
    masking = MaskingSettings(
        masking.probability, masking.mask_share, masking.random_share, whole_word=whole_word
    )
    batch = masked(masking, seed, np.array(indices))
    pieces = [ROWS.input_ids[ROWS.offsets[i] : ROWS.offsets[i + 1]] for i in indices]
    original = np.concatenate(pieces)
    assert np.diff(batch.offsets).tolist() == [len(piece) for piece in pieces]
    assert (np.diff(batch.target_positions) > 0).all()
    assert (batch.target_ids == original[batch.target_positions]).all()
    assert not np.isin(batch.target_ids, list(SPECIAL.all_ids)).any()
    untouched = np.ones(len(original), dtype=bool)
    untouched[batch.target_positions] = False
    assert (batch.input_ids[untouched] == original[untouched]).all()
    seen = batch.input_ids[batch.target_positions]
    assert np.isin(seen, [SPECIAL.mask_id, *VOCABULARY.ordinary_ids, *batch.target_ids]).all()


@settings(deadline=None, max_examples=30)
@given(shares, st.booleans(), seeds)
def test_shares_are_those_asked_for(masking, whole_word, seed):
    """Within 6 standard deviations of what independent draws give."""
    masking = MaskingSettings(
        masking.probability, masking.mask_share, masking.random_share, whole_word=whole_word
    )
    batch = masked(masking, seed)
    words, first = np.unique(ROWS.word_index[ROWS.word_index >= 0], return_inverse=True)
    sizes = np.bincount(first) if whole_word else np.ones(ROWS.num_tokens)
    assert len(words) < ROWS.num_tokens
    assert close(batch.num_targets, sizes, masking.probability)
    seen = batch.input_ids[batch.target_positions]
    drawn = np.ones(batch.num_targets)
    assert close((seen == SPECIAL.mask_id).sum(), drawn, masking.mask_share)
    # A random token is the target itself once in as many draws as there are tokens.
    changed = masking.random_share * (1 - 1 / len(VOCABULARY.ordinary_ids))
    assert close(((seen != SPECIAL.mask_id) & (seen != batch.target_ids)).sum(), drawn, changed)


def close(count: float, sizes: np.ndarray, probability: float) -> bool:
    """Whether a sum of sizes, each drawn with a probability, is plausible."""
    deviation = np.sqrt(probability * (1 - probability) * (sizes**2).sum())
    return abs(count - probability * sizes.sum()) <= 6 * deviation + 1e-6


@given(seeds, st.floats(0.05, 0.95))
def test_a_word_is_masked_whole_or_not_at_all(seed, probability):
    batch = masked(MaskingSettings(probability, whole_word=True), seed)
    is_target = np.zeros(len(ROWS.input_ids), dtype=bool)
    is_target[batch.target_positions] = True
    ordinary = ROWS.word_index >= 0
    _, word = np.unique(ROWS.word_index[ordinary], return_inverse=True)
    share = np.bincount(word, is_target[ordinary]) / np.bincount(word)
    assert set(share.tolist()) <= {0.0, 1.0}


def test_every_position_is_masked_as_often_as_any_other():
    """The first and last token of a row, too: masks are drawn independently of the place."""
    counts = np.zeros(len(ROWS.input_ids))
    for seed in range(400):
        counts[masked(MaskingSettings(0.15), seed).target_positions] += 1
    ordinary = ROWS.word_index >= 0
    assert (counts[~ordinary] == 0).all()
    deviation = np.sqrt(400 * 0.15 * 0.85)
    assert np.abs(counts[ordinary] - 60).max() < 6 * deviation


def test_masks_change_from_step_to_step_and_are_the_same_for_one_step():
    def targets(seed, step):
        batch = masked_batch(ROWS, ALL, MaskingSettings(), VOCABULARY, random_of(seed, MASKS, step))
        return batch.target_positions.tolist()

    assert targets(0, 1) == targets(0, 1)
    assert targets(0, 1) != targets(0, 2)
    assert targets(0, 1) != targets(1, 1)


@given(seeds, st.lists(st.integers(0, 9), max_size=6, unique=True))
def test_a_part_of_a_batch_is_its_rows(seed, chosen):
    batch = masked(MaskingSettings(0.3), seed, np.arange(10))
    part = batch.part(np.array(chosen, dtype=np.int64))
    assert part.num_rows == len(chosen)
    for place, row in enumerate(chosen):
        assert row_of(part, place) == row_of(batch, row)


def row_of(batch, index) -> tuple[list[int], list[int], list[int]]:
    start, end = batch.offsets[index : index + 2]
    inside = (batch.target_positions >= start) & (batch.target_positions < end)
    return (
        batch.input_ids[start:end].tolist(),
        (batch.target_positions[inside] - start).tolist(),
        batch.target_ids[inside].tolist(),
    )


@given(st.integers(1, 20), st.integers(1, 30), st.integers(0, 5))
def test_every_epoch_has_every_row_once(num_rows, batch_size, seed):
    num_steps = -(-3 * num_rows // batch_size)
    seen = np.concatenate([rows_of_step(num_rows, batch_size, seed, s) for s in range(1, num_steps + 1)])
    for epoch in range(3):
        assert sorted(seen[epoch * num_rows : (epoch + 1) * num_rows].tolist()) == list(range(num_rows))


def test_epochs_have_orders_of_their_own():
    orders = [rows_of_step(50, 50, seed, step).tolist() for seed in (0, 1) for step in (1, 2)]
    assert len({tuple(order) for order in orders}) == 4
