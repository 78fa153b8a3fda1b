"""What chains ask for, as rows through an engine."""

from __future__ import annotations

import numpy as np
import pytest
from generation_toys import FIRST, MASK, LogitsOf, chain_of, free_start, hashed, toy_scorer
from plain_samplers import masked, potential

from mlmfast.engines import Outputs
from mlmfast.errors import ModelError
from mlmfast.generation import GenerationSettings, generate
from mlmfast.generation import rows as rows_module
from mlmfast.generation.distribution import Distribution
from mlmfast.generation.requests import Draw, Potentials
from mlmfast.generation.rows import DrawRows, answer

STATES = [(5, 6, 7), (8, 5), (7, 7, 6, 5)]


def draw_of(state: tuple[int, ...], positions: list[int], **options) -> Draw:
    uniforms = np.random.default_rng(len(state)).random(len(positions))
    everything = np.arange(FIRST + 4) >= FIRST
    return Draw(
        np.array(state, dtype=np.int32),
        None,
        np.array(positions),
        uniforms,
        options.pop("distribution", Distribution(everything)),
        **options,
    )


def potentials_of(state: tuple[int, ...], positions: list[int], kind: str) -> Potentials:
    return Potentials(np.array(state, dtype=np.int32), None, np.array(positions), kind)


def test_requests_of_all_kinds_are_answered_in_order():
    logits_of = hashed(4)
    scorer = toy_scorer(logits_of, 4)
    narrow = Distribution(np.arange(FIRST + 4) >= FIRST, top_k=2)
    requests = [
        potentials_of(STATES[0], [2, 0], "norm"),
        draw_of(STATES[1], [1], with_log_probs=True, distribution=narrow),
        potentials_of(STATES[2], [3], "raw"),
        draw_of(STATES[2], [0, 2], masked=False),
        potentials_of(STATES[1], [0, 1], "norm"),
    ]
    found = answer(scorer, requests)
    for request, values in zip(requests, found, strict=True):
        state, positions = tuple(request.input_ids.tolist()), request.positions.tolist()
        if isinstance(request, Potentials):
            expected = [potential(logits_of, state, i, request.kind) for i in positions]
            np.testing.assert_allclose(values, expected, atol=1e-6)
            continue
        row = masked(state, positions) if request.masked else state
        for at, position in enumerate(positions):
            logits = logits_of(row, position)
            ids, _ = request.distribution.support(logits)
            token = values.tokens[at]
            assert token in ids
            assert values.changes[at] == float(logits[token]) - float(logits[state[position]])
            assert values.reversible[at] == (state[position] in ids)
            expected = request.distribution.log_prob(logits, token) if request.with_log_probs else np.nan
            np.testing.assert_equal(values.log_probs[at], expected)


def test_logits_are_asked_for_at_drawn_places_alone():
    scorer = toy_scorer(hashed(4), 4)
    list(generate(scorer, [free_start((5, MASK, 7))] * 3, GenerationSettings("mh", steps=3)))
    outputs = {outputs for _, outputs in scorer.engine.batches}
    assert outputs == {Outputs(logits=True), Outputs(logit=True)}
    for batch, asked in scorer.engine.batches:
        assert batch.num_targets == batch.num_rows
        assert asked.logit or batch.num_rows <= 3


@pytest.mark.parametrize("max_targets", [0, 1, 2, 3, 6, 7, 100])
def test_parts_hold_all_rows_in_order_within_the_bound(max_targets):
    scorer = toy_scorer(hashed(4), 4)
    sizes = [1, 2, 1, 3, 1, 1]
    draws = [draw_of((5, 6, 7), list(range(size))) for size in sizes]
    parts = [part.tolist() for part in DrawRows(scorer, draws).parts(max_targets)]
    assert [row for part in parts for row in part] == list(range(len(sizes)))
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        total = sum(sizes[row] for row in part)
        assert total <= max_targets or len(part) == 1
        if following is not None:
            assert total + sizes[following[0]] > max_targets


def test_the_bound_on_logits_changes_no_token(monkeypatch):
    requests = [draw_of(state, list(range(len(state)))) for state in STATES]
    expected = [drawn.tokens.tolist() for drawn in answer(toy_scorer(hashed(4), 4), requests)]
    monkeypatch.setattr(rows_module, "MAX_LOGITS", 1)
    scorer = toy_scorer(hashed(4), 4)
    assert [drawn.tokens.tolist() for drawn in answer(scorer, requests)] == expected
    assert [batch.num_rows for batch, _ in scorer.engine.batches] == [1, 1, 1]


def broken(value: float) -> LogitsOf:
    return lambda row, position: np.full(FIRST + 4, value, dtype=np.float32)


@pytest.mark.parametrize("sampler", ["gibbs", "mask_predict", "mh"])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_model_that_gives_no_numbers_is_an_error(sampler):
    with pytest.raises(ModelError, match="the model gave nan"):
        list(generate(toy_scorer(broken(np.nan), 4), [free_start((5, 6))], GenerationSettings(sampler)))


def test_no_positions_ask_for_nothing():
    chain = chain_of(toy_scorer(hashed(4), 4), free_start((5,)), GenerationSettings("mh"))
    with pytest.raises(StopIteration) as end:
        next(chain.potentials(chain.input_ids, np.zeros(0, dtype=np.int64)))
    assert len(end.value.value) == 0
