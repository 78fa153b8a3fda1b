"""The compiled head against its float64 twin, on every instruction set this CPU runs."""

from __future__ import annotations

import dataclasses
import logging
import math
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlmfast
from mlmfast import _core
from mlmfast.errors import MissingExtraError, SettingsError
from mlmfast.kernels import head as head_module
from mlmfast.kernels.head import HEAD_OUTPUTS, Head

ISAS = _core.available_isas()
TOLERANCE = 5e-5
ROW_COUNTS = (0, 1, 2, 17, 63, 64, 65)
every_isa = pytest.mark.parametrize("isa", ISAS)


@dataclasses.dataclass(frozen=True)
class Case:
    """hidden [m, H], weight [V, H], bias [V], subset [V] and ragged targets with 0 to 4 per row."""

    hidden: np.ndarray
    weight: np.ndarray
    bias: np.ndarray | None
    subset: np.ndarray
    target_ids: np.ndarray
    target_offsets: np.ndarray

    def rows(self, indices):
        """The same head with these rows only."""
        counts = np.diff(self.target_offsets)[indices]
        spans = [self.target_ids[self.target_offsets[r] : self.target_offsets[r + 1]] for r in indices]
        return dataclasses.replace(
            self,
            hidden=np.ascontiguousarray(self.hidden[indices]),
            target_ids=np.concatenate([np.empty(0, np.int32), *spans]).astype(np.int32),
            target_offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        )

    def score(self, head=None, *, top_k=None, **options):
        head = head or Head(self.weight, self.bias, subset=self.subset, **options)
        top_k = min(5, len(self.weight)) if top_k is None else top_k
        return head.score(
            self.hidden, self.target_ids, self.target_offsets, outputs=HEAD_OUTPUTS, top_k=top_k
        )


def make_case(seed, num_rows, hidden_size, vocab_size, *, integers=False, with_bias=True):
    """Random; with integers, logits are exact in float32 and full of ties."""
    rng = np.random.default_rng(seed)

    def draw(*shape):
        values = rng.integers(-2, 3, shape) if integers else rng.standard_normal(shape)
        return values.astype(np.float32)

    counts = rng.integers(0, 5, num_rows)
    return Case(
        hidden=draw(num_rows, hidden_size),
        weight=draw(vocab_size, hidden_size) * np.float32(1 if integers else 8 / math.sqrt(hidden_size)),
        bias=draw(vocab_size) if with_bias else None,
        subset=rng.integers(0, 2, vocab_size).astype(np.uint8),
        target_ids=rng.integers(0, vocab_size, counts.sum()).astype(np.int32),
        target_offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
    )


@lru_cache(maxsize=1)
def case_and_reference(hidden_size, vocab_size):
    case = make_case(hidden_size * vocab_size, max(ROW_COUNTS), hidden_size, vocab_size)
    return case, case.score(impl="reference")


def first_targets(outputs, count):
    return dataclasses.replace(outputs, **{name: column[:count] for name, column in vars(outputs).items()})


def assert_close(got, want, tolerance=TOLERANCE):
    """All columns but the ranks and top ids, which near-ties may move, and their consistency."""
    for name in ("log_prob", "logit", "logits", "entropy", "word_start_log_prob", "top_log_probs"):
        np.testing.assert_allclose(
            getattr(got, name), getattr(want, name), rtol=1e-6, atol=tolerance, err_msg=name
        )
    assert np.all(got.top_log_probs[:, 1:] <= got.top_log_probs[:, :-1])
    assert all(len(set(ids)) == len(ids) for ids in got.top_ids)


def assert_places_fit(got, case, tolerance=TOLERANCE):
    """Ranks and top ids agree with the float64 logits up to the order of near-ties."""
    rows = np.repeat(np.arange(len(case.hidden)), np.diff(case.target_offsets))
    logits = case.hidden[rows].astype(np.float64) @ case.weight.T.astype(np.float64)
    logits += 0 if case.bias is None else case.bias
    target_logits = logits[np.arange(len(rows)), case.target_ids][:, None]
    assert np.all(got.rank >= np.sum(logits > target_logits + tolerance, axis=1))
    assert np.all(got.rank < np.sum(logits > target_logits - tolerance, axis=1))
    top_logits = np.take_along_axis(logits, got.top_ids, axis=1)
    want = -np.sort(-logits, axis=1)[:, : got.top_ids.shape[1]]
    np.testing.assert_allclose(top_logits, want, rtol=0, atol=tolerance)


def assert_same_bits(got, want):
    for name, column in vars(want).items():
        assert getattr(got, name).tobytes() == column.tobytes(), name


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("vocab_size", [1, 2, 15, 16, 17, 31, 1000, 30522])
@pytest.mark.parametrize("hidden_size", [1, 3, 12, 64, 384])
def test_agrees_with_reference_on_odd_shapes(hidden_size, vocab_size, isa):
    case, want = case_and_reference(hidden_size, vocab_size)
    head = Head(case.weight, case.bias, subset=case.subset, isa=isa)
    assert head.isa == isa
    for num_rows in ROW_COUNTS:
        part = case.rows(np.arange(num_rows))
        got = part.score(head)
        assert_close(got, first_targets(want, len(part.target_ids)))
        if vocab_size <= 1000:
            assert_places_fit(got, part)


@every_isa
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_rows=st.integers(0, 40),
    hidden_size=st.integers(1, 300),
    vocab_size=st.integers(1, 1200),
    integers=st.booleans(),
    with_bias=st.booleans(),
)
def test_agrees_with_reference_on_random_shapes(
    isa, seed, num_rows, hidden_size, vocab_size, integers, with_bias
):
    case = make_case(seed, num_rows, hidden_size, vocab_size, integers=integers, with_bias=with_bias)
    got, want = case.score(isa=isa), case.score(impl="reference")
    assert_close(got, want)
    if integers:
        np.testing.assert_array_equal(got.rank, want.rank)
        np.testing.assert_array_equal(got.top_ids, want.top_ids)
        np.testing.assert_array_equal(got.logit, want.logit)


@every_isa
@pytest.mark.parametrize("top_k", [1, 33, 700])
def test_ties_go_to_the_lower_id(isa, top_k):
    case = make_case(5, 9, 4, 700, integers=True)
    got, want = case.score(isa=isa, top_k=top_k), case.score(impl="reference", top_k=top_k)
    np.testing.assert_array_equal(got.top_ids, want.top_ids)
    np.testing.assert_array_equal(got.rank, want.rank)


@every_isa
def test_large_logits_stay_within_the_stated_tolerance(isa):
    case = make_case(6, 33, 768, 5000)
    case = dataclasses.replace(case, weight=case.weight * np.float32(1.4))
    want = case.score(impl="reference")
    assert 45 < np.abs(case.hidden @ case.weight.T + case.bias).max() < 60
    np.testing.assert_allclose(case.score(isa=isa).log_prob, want.log_prob, rtol=0, atol=1e-4)


def fixed_logits(logits, target_ids, subset=None):
    """One row whose logits are the bias."""
    logits = np.asarray(logits, np.float32)
    return Case(
        hidden=np.zeros((1, 2), np.float32),
        weight=np.ones((len(logits), 2), np.float32),
        bias=logits,
        subset=np.zeros(len(logits), np.uint8) if subset is None else np.asarray(subset, np.uint8),
        target_ids=np.asarray(target_ids, np.int32),
        target_offsets=np.array([0, len(target_ids)], np.int64),
    )


def logits_with(size, background, **places):
    logits = np.full(size, background, np.float32)
    for place, value in places.items():
        logits[int(place[1:])] = value
    return logits


@every_isa
@pytest.mark.parametrize(
    "logits",
    [
        pytest.param(logits_with(1000, 80, _7=-80), id="one at -80"),
        pytest.param(logits_with(1000, -80, _999=80), id="dominating last"),
        pytest.param(logits_with(1000, 0, _0=3e38), id="near overflow"),
        pytest.param(logits_with(1000, -3e38), id="all near lowest"),
        pytest.param(logits_with(1000, -1e30, _500=-1e30 / 2), id="large negatives"),
        pytest.param(np.linspace(-110, 0, 1000), id="through underflow"),
        pytest.param(logits_with(2000, -np.inf, _1500=1.0), id="tiles of -inf"),
        pytest.param(logits_with(2000, 1.0, _3=-np.inf), id="one -inf"),
    ],
)
def test_extreme_logits(isa, logits):
    case = fixed_logits(logits, [0, 3, 7, 500, len(logits) - 1], subset=np.arange(len(logits)) % 3 == 0)
    got, want = case.score(isa=isa), case.score(impl="reference")
    assert_close(got, want)
    np.testing.assert_array_equal(got.rank, want.rank)
    np.testing.assert_array_equal(got.top_ids, want.top_ids)
    assert not np.isnan(got.log_prob).any()


@every_isa
def test_equal_logits_are_uniform(isa):
    got = fixed_logits(np.full(999, 4.0), [0, 998]).score(isa=isa)
    np.testing.assert_allclose(got.log_prob, -math.log(999), rtol=1e-6)
    np.testing.assert_allclose(got.entropy, math.log(999), rtol=1e-6)
    assert got.rank.tolist() == [0, 0]
    assert got.top_ids.tolist() == [[0, 1, 2, 3, 4]] * 2
    assert got.word_start_log_prob.tolist() == [-np.inf] * 2


@every_isa
def test_subset_far_below_the_largest_logit_keeps_its_precision(isa):
    got = fixed_logits(logits_with(100, -200, _0=0), [0], subset=np.arange(100) >= 50).score(isa=isa)
    np.testing.assert_allclose(got.word_start_log_prob, -200 + math.log(50), rtol=1e-6)


@every_isa
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 36])
def test_bad_hidden_gives_nan_there_and_nowhere_else(isa, bad, place):
    clean = make_case(8, 30, 37, 650)
    hidden = clean.hidden.copy()
    hidden[13, place] = bad
    poisoned = dataclasses.replace(clean, hidden=hidden)
    head = Head(clean.weight, clean.bias, subset=clean.subset, isa=isa)
    got, want = poisoned.score(head), clean.score(head)
    rows = np.repeat(np.arange(30), np.diff(clean.target_offsets))
    assert np.sum(rows == 13) > 0
    for name in ("log_prob", "entropy", "word_start_log_prob", "top_log_probs"):
        assert np.isnan(getattr(got, name)[rows == 13]).all(), name
    assert (got.rank[rows == 13] == -1).all()
    assert (got.top_ids[rows == 13] == -1).all()
    for name, column in vars(want).items():
        assert getattr(got, name)[rows != 13].tobytes() == column[rows != 13].tobytes(), name
    assert_same_bits(clean.score(head), want)


@every_isa
def test_one_nan_weight_or_nothing_possible_gives_nan(isa):
    for logits in (logits_with(700, 0, _650=np.nan), np.full(700, -np.inf)):
        case = fixed_logits(logits, [0, 650], subset=np.ones(700))
        got, want = case.score(isa=isa), case.score(impl="reference")
        for outputs in (got, want):
            assert np.isnan(outputs.log_prob).all()
            assert np.isnan(outputs.entropy).all()
            assert np.isnan(outputs.word_start_log_prob).all()
            assert np.isnan(outputs.top_log_probs).all()
            assert (outputs.rank == -1).all()
            assert (outputs.top_ids == -1).all()


@every_isa
def test_many_targets_in_one_row_and_none_in_the_others(isa):
    case = make_case(9, 3, 20, 900)
    ids = np.random.default_rng(0).integers(0, 900, 2000).astype(np.int32)
    case = dataclasses.replace(case, target_ids=ids, target_offsets=np.array([0, 0, 2000, 2000], np.int64))
    got = case.score(isa=isa)
    assert_close(got, case.score(impl="reference"))
    assert_places_fit(got, case)


@every_isa
def test_a_row_gives_the_same_bits_in_any_company(isa):
    case = make_case(10, 400, 384, 700)
    head = Head(case.weight, case.bias, subset=case.subset, isa=isa)
    together = case.score(head)
    order = np.random.default_rng(1).permutation(400)
    for part in (order[:1], order[:5], order[:29], order[:70], order):
        targets = np.concatenate(
            [np.arange(case.target_offsets[r], case.target_offsets[r + 1]) for r in part]
        ).astype(np.int64)
        want = {name: column[targets] for name, column in vars(together).items()}
        assert_same_bits(case.rows(part).score(head), dataclasses.replace(together, **want))


@every_isa
def test_outputs_asked_for_do_not_change_each_other(isa):
    case = make_case(11, 21, 50, 800)
    head = Head(case.weight, case.bias, subset=case.subset, isa=isa)
    everything = case.score(head)
    for name in HEAD_OUTPUTS:
        alone = head.score(case.hidden, case.target_ids, case.target_offsets, outputs=(name,))
        assert getattr(alone, name).tobytes() == getattr(everything, name).tobytes()
        asked = {field for field, column in vars(alone).items() if column is not None}
        assert asked == {"log_prob", name}


def test_threads_share_a_head():
    case = make_case(12, 100, 64, 6000)
    head = Head(case.weight, case.bias, subset=case.subset)
    parts = [case.rows(np.arange(start, 100, 4)[: 25 - 3 * start]) for start in range(4)]
    barrier = threading.Barrier(len(parts))

    def score_again_and_again(part):
        barrier.wait()
        return [part.score(head) for _ in range(20)]

    with ThreadPoolExecutor(len(parts)) as pool:
        for part, results in zip(parts, pool.map(score_again_and_again, parts), strict=True):
            for got in results:
                assert_same_bits(got, part.score(head))


GOOD = make_case(13, 3, 4, 10)
OFFSETS = np.array([0, 1, 1, 2], np.int64)
IDS = np.array([9, 0], np.int32)


@pytest.mark.parametrize("impl", ["cpu", "reference"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hidden": GOOD.hidden.astype(np.float64)}, r"hidden.*float32\[m, 4\].*float64\[3, 4\]"),
        ({"hidden": GOOD.hidden[:, :3].copy()}, r"hidden.*got float32\[3, 3\]"),
        ({"hidden": GOOD.hidden[0]}, r"hidden.*got float32\[4\]"),
        ({"hidden": np.asfortranarray(GOOD.hidden)}, r"hidden.*ascontiguousarray"),
        ({"hidden": GOOD.hidden.tolist()}, r"hidden.*got list"),
        ({"target_ids": IDS.astype(np.int64)}, r"target_ids.*int32.*got int64"),
        ({"target_ids": np.array([10, 0], np.int32)}, r"target_ids.*0 to 9, got 10 at target 0"),
        ({"target_ids": np.array([0, -1], np.int32)}, r"target_ids.*got -1 at target 1"),
        ({"target_offsets": OFFSETS[:3].copy()}, r"target_offsets.*int64\[4\].*int64\[3\]"),
        ({"target_offsets": OFFSETS.astype(np.int32)}, r"target_offsets.*got int32"),
        ({"target_offsets": np.array([0, 2, 1, 2])}, r"never fall, got 2 then 1 at row 1"),
        ({"target_offsets": np.array([1, 1, 1, 2])}, r"from 0 to the 2 targets, got 1 to 2"),
        ({"target_offsets": np.array([0, 1, 1, 3])}, r"from 0 to the 2 targets, got 0 to 3"),
        ({"outputs": ("log_prob", "top_ids")}, r"outputs.*got top_ids; .* top_k"),
        ({"outputs": ("word_start_log_prob",)}, r"subset=uint8"),
        ({"top_k": 11}, r"top_k: expected 0 to 10"),
        ({"top_k": -1}, r"top_k"),
    ],
)
def test_bad_arguments_are_refused(impl, arguments, message):
    head = Head(GOOD.weight, GOOD.bias, impl=impl)
    good = {"hidden": GOOD.hidden, "target_ids": IDS, "target_offsets": OFFSETS}
    head.score(**good)
    with pytest.raises(SettingsError, match=message):
        head.score(**good | arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weight": GOOD.weight.astype(np.float16)}, r"weight.*float32\[V, H\].*float16"),
        ({"weight": np.empty((0, 4), np.float32)}, r"weight.*at least one"),
        ({"weight": np.empty((10, 0), np.float32)}, r"weight.*at least one"),
        ({"bias": np.zeros(9, np.float32)}, r"bias.*float32\[10\].*float32\[9\]"),
        ({"subset": np.zeros(10, bool)}, r"subset.*uint8\[10\].*bool"),
        ({"impl": "cuda"}, r"impl: expected one of auto, cpu, reference, got 'cuda'"),
        ({"isa": "sse9"}, r"'sse9'.*use one of: generic"),
        ({"impl": "reference", "isa": "generic"}, r"takes none"),
    ],
)
def test_bad_heads_are_refused(arguments, message):
    with pytest.raises(SettingsError, match=message):
        Head(**{"weight": GOOD.weight, "bias": GOOD.bias} | arguments)


@pytest.mark.parametrize(
    ("target_ids", "target_offsets"),
    [
        (np.array([10, 0], np.int32), OFFSETS),
        (np.array([0, -1], np.int32), OFFSETS),
        (IDS, np.array([0, 2, 1, 2])),
        (IDS, np.array([0, 1, 1, 3])),
        (IDS, np.array([-1, 1, 1, 2])),
        (IDS, np.array([0, 1, 2])),
        (IDS.reshape(2, 1), OFFSETS),
    ],
)
def test_core_guards_its_memory(target_ids, target_offsets):
    core_head = _core.Head(GOOD.weight, None, None)
    with pytest.raises(ValueError, match="target_"):
        core_head.score(GOOD.hidden, target_ids, target_offsets)


def test_environment_variable_forces_the_instruction_set(monkeypatch):
    for isa in ISAS:
        monkeypatch.setenv("MLMFAST_ISA", isa)
        assert _core.isa() == isa
        assert Head(GOOD.weight).isa == isa
    monkeypatch.setenv("MLMFAST_ISA", "neon9")
    with pytest.raises(SettingsError, match=f"MLMFAST_ISA.*'neon9'.*{', '.join(ISAS)}"):
        Head(GOOD.weight)
    monkeypatch.delenv("MLMFAST_ISA")
    assert _core.isa() == ISAS[-1]


def test_available_instruction_sets_follow_the_cpu():
    features = set(_core.cpu_features())
    assert ("avx2" in ISAS) == ({"avx2", "fma"} <= features)
    assert ("avx512" in ISAS) == ({"avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"} <= features)


def test_missing_core_says_how_to_build_it(monkeypatch):
    monkeypatch.delattr(mlmfast, "_core")
    monkeypatch.setitem(sys.modules, "mlmfast._core", None)
    for impl in ("auto", "cpu"):
        with pytest.raises(MissingExtraError, match="pip install"):
            Head(GOOD.weight, impl=impl)
    assert Head(GOOD.weight, impl="reference").impl == "reference"


def test_auto_logs_its_choice_once(caplog):
    head_module.log_choice.cache_clear()
    with caplog.at_level(logging.DEBUG, logger="mlmfast.kernels.head"):
        Head(GOOD.weight)
        Head(GOOD.weight)
    assert [record.getMessage() for record in caplog.records] == [
        f"head: impl 'auto' uses 'cpu' ({_core.isa()})"
    ]
