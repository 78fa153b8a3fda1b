"""Log-probabilities of every letter at positions of rows, through a scorer's engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlmfast.errors import ModelError
from mlmfast.proteins.protein import Protein, Row
from mlmfast.scheduling import pack_for_workers, row_batch
from mlmfast.scheduling.csr import offsets_of, ranges, select
from mlmfast.scorer import Scorer
from mlmfast.types import Float32Array, Int64Array, MaskedRows, RowBatch, TargetOutputs, TokenizedTexts

Reading = tuple[Row, int]
"""A position of a row, in residues of the wild type."""


def read(scorer: Scorer, protein: Protein, readings: Sequence[Reading]) -> Float32Array:
    """float32[P, A], natural log-probabilities of the protein's letters at each of P readings.

    Rows are computed once however many readings they have. Raises ModelError for a value that is not finite.
    """
    rows = ResidueRows(protein, readings, scorer.max_batch_tokens, scorer.num_workers)
    scorer.compute(rows, np.arange(rows.rows.num_rows))
    if not np.isfinite(rows.log_probs).all():
        raise ModelError(
            f"{scorer.files.source.name} gave {rows.log_probs[~np.isfinite(rows.log_probs)][0]} for a "
            "residue; its weights or this precision cannot score it"
        )
    return rows.log_probs


class ResidueRows:
    """The distinct rows of some readings on their way through an engine; a `RowSource`."""

    def __init__(
        self, protein: Protein, readings: Sequence[Reading], max_batch_tokens: int, num_workers: int
    ) -> None:
        self._mask_id = protein.mask_id
        self._max_batch_tokens, self._num_workers = max_batch_tokens, num_workers
        readings_of: dict[Row, list[int]] = {}
        for number, (row, _) in enumerate(readings):
            readings_of.setdefault(row, []).append(number)
        text_of: dict[tuple[int, tuple[tuple[int, str], ...]], int] = {}
        text_index = [text_of.setdefault((row.window, row.changed), len(text_of)) for row in readings_of]
        self._texts = changed_texts(protein, list(text_of))
        self.rows = masked_rows(protein, readings, readings_of, np.array(text_index, dtype=np.int32))
        self.log_probs = np.full((len(readings), len(protein.letters)), np.nan, dtype=np.float32)

    def batches_of(self, rows: Int64Array) -> list[Int64Array]:
        lengths = self._texts.lengths[self.rows.text_index[rows]]
        return [rows[b] for b in pack_for_workers(lengths, self._max_batch_tokens, self._num_workers)]

    def batch(self, indices: Int64Array) -> tuple[RowBatch, Int64Array]:
        return row_batch(self._texts, self.rows, indices, self._mask_id)

    def scatter(self, found: TargetOutputs, slots: Int64Array) -> None:
        self.log_probs.reshape(-1)[slots] = found.log_prob


def changed_texts(
    protein: Protein, texts: Sequence[tuple[int, tuple[tuple[int, str], ...]]]
) -> TokenizedTexts:
    """The given windows with the letters at the given positions exchanged."""
    windows = protein.window_texts
    tokens, offsets = select(windows.offsets, np.array([number for number, _ in texts], dtype=np.int64))
    input_ids = windows.input_ids[tokens]
    for start, (number, changed) in zip(offsets, texts, strict=False):
        for position, letter in changed:
            letter_id = protein.letter_ids[protein.letters.index(letter)]
            input_ids[start + protein.token_of(number, position)] = letter_id
    return TokenizedTexts(
        input_ids=input_ids,
        offsets=offsets,
        token_type_ids=None if windows.token_type_ids is None else windows.token_type_ids[tokens],
        word_ids=windows.word_ids[tokens],
        char_spans=windows.char_spans[tokens],
    )


def masked_rows(
    protein: Protein,
    readings: Sequence[Reading],
    readings_of: dict[Row, list[int]],
    text_index: np.ndarray[tuple[int], np.dtype[np.int32]],
) -> MaskedRows:
    """The rows with a target for each letter of each reading; slot reading * A + letter."""
    num_letters = len(protein.letters)
    masks = [protein.token_of(row.window, position) for row in readings_of for position in row.masked]
    order = np.array([number for numbers in readings_of.values() for number in numbers], dtype=np.int64)
    places = [protein.token_of(row.window, position) for row, position in (readings[i] for i in order)]
    num_readings = np.array([len(numbers) for numbers in readings_of.values()], dtype=np.int64)
    return MaskedRows(
        text_index=text_index,
        mask_positions=np.array(masks, dtype=np.int32),
        mask_offsets=offsets_of(np.array([len(row.masked) for row in readings_of], dtype=np.int64)),
        target_positions=np.repeat(np.array(places, dtype=np.int32), num_letters),
        target_ids=np.tile(protein.letter_ids, len(order)),
        target_slots=ranges(order * num_letters, np.full(len(order), num_letters)),
        target_offsets=offsets_of(num_readings * num_letters),
    )
