"""Requests of many chains answered together: their rows in packed batches through a scorer's engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mlmfast.energies import KINDS
from mlmfast.engines import Outputs
from mlmfast.errors import ModelError
from mlmfast.generation.distribution import Float64Array, draw
from mlmfast.generation.requests import Draw, Drawn, Potentials, Request
from mlmfast.scheduling import pack_for_workers, row_batch
from mlmfast.scheduling.csr import offsets_of
from mlmfast.scorer import Scorer
from mlmfast.types import (
    BoolArray,
    Int32Array,
    Int64Array,
    MaskedRows,
    RowBatch,
    TargetOutputs,
    TokenizedTexts,
)

MAX_LOGITS = 1 << 24
"""Logits held at a time, 64 MiB, unless one row has more."""


def answer(scorer: Scorer, requests: Sequence[Request]) -> list[Drawn | Float64Array]:
    """What each request asks for, in order. Raises ModelError for a value that is not finite."""
    answers: dict[int, Drawn | Float64Array] = {}
    draws = {index: request for index, request in enumerate(requests) if isinstance(request, Draw)}
    if draws:
        answers.update(zip(draws, draw_tokens(scorer, list(draws.values())), strict=True))
    for kind in KINDS:
        asked = {i: r for i, r in enumerate(requests) if isinstance(r, Potentials) and r.kind == kind}
        if asked:
            answers.update(zip(asked, compute_potentials(scorer, list(asked.values()), kind), strict=True))
    return [answers[index] for index in range(len(requests))]


def draw_tokens(scorer: Scorer, draws: Sequence[Draw]) -> list[Drawn]:
    rows = DrawRows(scorer, draws)
    for part in rows.parts(MAX_LOGITS // scorer.files.config.vocab_size):
        scorer.compute(rows, part, Outputs(logits=True))
    return rows.answers()


def compute_potentials(scorer: Scorer, requests: Sequence[Potentials], kind: str) -> list[Float64Array]:
    rows = PotentialRows(scorer, requests, kind)
    scorer.compute(rows, np.arange(rows.num_rows), Outputs(logit=kind == "raw"))
    return rows.answers()


class ChainRows:
    """Rows of the states that requests hold, on their way through an engine; a `RowSource` but for `scatter`.

    Slots number the positions of all requests.
    """

    def __init__(
        self,
        scorer: Scorer,
        requests: Sequence[Draw] | Sequence[Potentials],
        text_index: Int64Array,
        target_counts: Int64Array,
        is_masked: BoolArray,
    ) -> None:
        """text_index int64[R], the request of each row; target_counts int64[R], positions of each row, which
        are masked where is_masked bool[R]."""
        self._max_batch_tokens, self._num_workers = scorer.max_batch_tokens, scorer.num_workers
        self._mask_id = scorer.files.tokenizer.special.mask_id
        self._texts = texts_of(requests)
        self.offsets = offsets_of(np.array([len(request.positions) for request in requests]))
        positions = np.concatenate([request.positions for request in requests]).astype(np.int32)
        starts = np.repeat(self._texts.offsets[:-1], np.diff(self.offsets))
        self.token_ids = self._texts.input_ids[starts + positions]
        self._rows = MaskedRows(
            text_index=text_index.astype(np.int32),
            mask_positions=positions[np.repeat(is_masked, target_counts)],
            mask_offsets=offsets_of(np.where(is_masked, target_counts, 0)),
            target_positions=positions,
            target_ids=self.token_ids,
            target_slots=np.arange(len(positions)),
            target_offsets=offsets_of(target_counts),
        )

    @property
    def num_rows(self) -> int:
        return self._rows.num_rows

    def parts(self, max_targets: int) -> Iterator[Int64Array]:
        """Consecutive rows, with at most that many targets in each part that has several."""
        ends, start = self._rows.target_offsets, 0
        while start < self.num_rows:
            end = int(np.searchsorted(ends, ends[start] + max_targets, side="right")) - 1
            end = max(end, start + 1)
            yield np.arange(start, end)
            start = end

    def batches_of(self, rows: Int64Array) -> list[Int64Array]:
        """See workers.RowSource."""
        lengths = self._texts.lengths[self._rows.text_index[rows]]
        return [rows[b] for b in pack_for_workers(lengths, self._max_batch_tokens, self._num_workers)]

    def batch(self, indices: Int64Array) -> tuple[RowBatch, Int64Array]:
        """See workers.RowSource."""
        assert self._mask_id is not None  # `generate` refuses models without
        return row_batch(self._texts, self._rows, indices, self._mask_id)


class DrawRows(ChainRows):
    """A row for each Draw; the logits of a position are reduced to a token as they come."""

    def __init__(self, scorer: Scorer, draws: Sequence[Draw]) -> None:
        counts = np.array([len(request.positions) for request in draws])
        is_masked = np.array([request.masked for request in draws])
        super().__init__(scorer, draws, np.arange(len(draws)), counts, is_masked)
        self._draws = draws
        self._draw_of_slot = np.repeat(np.arange(len(draws)), counts)
        self._uniforms = np.concatenate([request.uniforms for request in draws])
        self._found = Drawn(
            tokens=np.empty(len(self._uniforms), dtype=np.int32),
            changes=np.empty(len(self._uniforms)),
            reversible=np.empty(len(self._uniforms), dtype=bool),
            log_probs=np.full(len(self._uniforms), np.nan),
        )

    def scatter(self, found: TargetOutputs, slots: Int64Array) -> None:
        """See workers.RowSource."""
        assert found.logits is not None  # they were asked for
        for logits, slot in zip(found.logits, slots, strict=True):
            asked = self._draws[self._draw_of_slot[slot]]
            ids, weights = asked.distribution.support(logits)
            token, before = draw(ids, weights, self._uniforms[slot]), self.token_ids[slot]
            self._found.tokens[slot] = token
            self._found.changes[slot] = float(logits[token]) - float(logits[before])
            at = ids.searchsorted(before)
            self._found.reversible[slot] = at < len(ids) and ids[at] == before
            if asked.with_log_probs:
                self._found.log_probs[slot] = asked.distribution.log_prob(logits, token)

    def answers(self) -> list[Drawn]:
        columns = [np.split(column, self.offsets[1:-1]) for column in vars(self._found).values()]
        return [Drawn(*values) for values in zip(*columns, strict=True)]


class PotentialRows(ChainRows):
    """A row for each position of Potentials, that position masked."""

    def __init__(self, scorer: Scorer, requests: Sequence[Potentials], kind: str) -> None:
        counts = np.array([len(request.positions) for request in requests])
        ones = np.ones(counts.sum(), dtype=np.int64)
        super().__init__(scorer, requests, np.repeat(np.arange(len(requests)), counts), ones, ones == 1)
        self._kind = kind
        self._values = np.empty(len(ones))

    def scatter(self, found: TargetOutputs, slots: Int64Array) -> None:
        """See workers.RowSource."""
        # A logarithm of 1 may come out above 0 by its rounding, but early rejection counts on its sign.
        values = found.logit if self._kind == "raw" else np.minimum(found.log_prob, 0)
        assert values is not None  # they were asked for
        if not np.isfinite(values).all():
            raise ModelError(
                f"the model gave {values[~np.isfinite(values)][0]} for a token of a chain; its weights or "
                "this precision cannot score it"
            )
        self._values[slots] = values

    def answers(self) -> list[Float64Array]:
        return np.split(self._values, self.offsets[1:-1])


def texts_of(requests: Sequence[Draw] | Sequence[Potentials]) -> TokenizedTexts:
    """The states of requests as texts, of which rows need no words and spans."""
    offsets = offsets_of(np.array([len(request.input_ids) for request in requests]))
    num_tokens = int(offsets[-1])
    types: Int32Array | None = None
    if any(request.token_type_ids is not None for request in requests):
        types = np.concatenate(
            [np.zeros_like(r.input_ids) if r.token_type_ids is None else r.token_type_ids for r in requests]
        )
    return TokenizedTexts(
        input_ids=np.concatenate([request.input_ids for request in requests]),
        offsets=offsets,
        token_type_ids=types,
        word_ids=np.zeros(num_tokens, dtype=np.int32),
        char_spans=np.zeros((num_tokens, 2), dtype=np.int32),
    )
