"""Autocorrelation and effective sample size against plain sums and known chains; rates of small trails."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mlmfast.errors import InputError, SettingsError
from mlmfast.evaluation import (
    TrailRecord,
    autocorrelation,
    autocorrelation_time,
    effective_sample_size,
    plot_energies,
    read_chains,
    read_trail,
    trail_figures,
)
from mlmfast.evaluation.energy_plot import energy_figure


def autoregressive(coefficient: float, num_values: int) -> np.ndarray:
    noise = np.random.default_rng(7).standard_normal(num_values)
    values = np.empty(num_values)
    value = noise[0] / np.sqrt(1 - coefficient**2)
    for index, shock in enumerate(noise):
        values[index] = value = coefficient * value + shock
    return values


def plain_autocorrelation(values: np.ndarray) -> list[float]:
    mean = sum(values) / len(values)
    sums = [
        sum((values[i] - mean) * (values[i + lag] - mean) for i in range(len(values) - lag))
        for lag in range(len(values))
    ]
    return [s / sums[0] for s in sums]


def plain_time(correlations: list[float]) -> float:
    total, last = 0.0, float("inf")
    for k in range(len(correlations) // 2):
        pair = correlations[2 * k] + correlations[2 * k + 1]
        if pair <= 0:
            break
        last = min(last, pair)
        total += last
    return 2 * total - 1


@pytest.mark.parametrize("num_values", [4, 5, 31, 64, 65])
def test_plain_sums(num_values):
    values = autoregressive(0.7, num_values)
    expected = plain_autocorrelation(values)
    found = autocorrelation(values)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert autocorrelation_time(found) == pytest.approx(max(plain_time(expected), 1 / np.log10(num_values)))


@pytest.mark.parametrize("coefficient", [0.9, 0.5, 0.0, -0.5])
def test_an_autoregressive_chain_has_its_known_effective_size(coefficient):
    num_values = 100_000
    size = effective_sample_size(autoregressive(coefficient, num_values))
    assert size == pytest.approx(num_values * (1 - coefficient) / (1 + coefficient), rel=0.1)


@pytest.mark.parametrize("unit", [1e-300, 1e300])
def test_the_unit_of_energy_changes_nothing(unit):
    values = autoregressive(0.5, 50)
    np.testing.assert_allclose(autocorrelation(unit * values), autocorrelation(values), atol=1e-12)


def test_an_antithetic_chain_has_a_finite_size():
    assert effective_sample_size(np.tile([0.0, 1.0], 50)) == pytest.approx(100 * np.log10(100))


def test_no_size_without_movement_or_values():
    assert effective_sample_size(np.full(100, 0.1)) is None
    assert effective_sample_size(np.array([1.0, 2.0, 3.0])) is None
    assert autocorrelation(np.array([])) is None
    assert autocorrelation(np.array([1.0])) is None


def trail(tmp_path, *objects) -> str:
    path = tmp_path / "trail.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in objects), encoding="utf-8")
    return str(path)


def state(chain, step, text, energy, accepted=None, **more):
    return {"chain": chain, "step": step, "text": text, "energy": energy, "accepted": accepted, **more}


TWO_CHAINS = (
    state(1, 0, "a b", 3.0),
    state(0, 0, "a a", 1.0),
    state(1, 1, "a c", 2.0, True),
    state(0, 1, "a a", 1.0, False),
    state(1, 2, "a c", 2.0, True),  # accepted, but the same token: no edit
    state(1, 3, "a d", 5.0, True),
    state(0, 2, "b a", 4.0, True),
)


def test_rates_and_energies(tmp_path):
    figures = trail_figures(read_chains(read_trail(trail(tmp_path, *TWO_CHAINS))), num_lags=2)
    assert [chain.chain for chain in figures.chains] == [0, 1]
    short, moving = figures.chains
    assert (short.num_records, moving.num_records, figures.num_records) == (3, 4, 7)
    assert (short.acceptance_rate, moving.acceptance_rate, figures.acceptance_rate) == (0.5, 1.0, 0.8)
    assert (short.edit_rate, moving.edit_rate) == (0.5, pytest.approx(2 / 3))
    assert figures.edit_rate == pytest.approx(3 / 5)
    assert (short.mean_energy, moving.mean_energy) == (2.0, 3.0)
    assert figures.mean_energy == pytest.approx(18 / 7)
    assert short.effective_sample_size is None
    energies = np.array([3.0, 2.0, 2.0, 5.0])
    assert moving.autocorrelation == pytest.approx(plain_autocorrelation(energies)[1:3])
    assert moving.effective_sample_size == pytest.approx(effective_sample_size(energies))
    assert figures.effective_sample_size == moving.effective_sample_size


def test_burn_in_counts_the_move_into_the_first_step(tmp_path):
    path = trail(tmp_path, *TWO_CHAINS)
    _, moving = trail_figures(read_chains(read_trail(path), burn_in=2)).chains
    assert (moving.num_records, moving.acceptance_rate, moving.edit_rate) == (2, 1.0, 0.5)
    assert moving.mean_energy == 3.5
    with pytest.raises(InputError, match="chain 0 ends before step 3"):
        read_chains(read_trail(path), burn_in=3)


def test_a_sampler_without_energies_and_proposals(tmp_path):
    records = ({"chain": 0, "step": step, "tokens": [7, step // 2]} for step in range(5))
    (chain,) = trail_figures(read_chains(read_trail(trail(tmp_path, *records)))).chains
    assert chain.edit_rate == 0.5
    assert (chain.acceptance_rate, chain.mean_energy, chain.effective_sample_size) == (None, None, None)


def test_records(tmp_path):
    path = trail(tmp_path, state(0, 4, "é", 1, None), {"chain": 2, "step": 0, "tokens": ["a", "b"]})
    assert list(read_trail(path)) == [
        TrailRecord(0, 4, "é", 1.0, None),
        TrailRecord(2, 0, ("a", "b"), None, None),
    ]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ([1], "line 2: [1] is not a JSON object"),
        (state(-1, 0, "a", 0.0), "line 2: 'chain' is -1; expected a whole number from 0"),
        (state(0, 0.5, "a", 0.0), "line 2: 'step' is 0.5; expected a whole number from 0"),
        (state(0, 0, "a", 0.0), "line 2: step 0 of chain 0 comes after its step 0"),
        (state(0, 1, None, 0.0), "line 2: 'tokens' is missing and 'text' None"),
        (state(0, 1, "a", 0.0, tokens=[True]), "line 2: 'tokens' is [True]"),
        (state(0, 1, "a", float("nan")), "line 2: 'energy' is nan; expected a finite number, or null"),
        (state(0, 1, "a", True), "line 2: 'energy' is True"),
        (state(0, 1, "a", -(10**400)), "line 2: 'energy' is -10"),
        (state(0, 10**400, "a", 0.0), "line 2: 'step' is 10"),
        (state(10**400, 1, "a", 0.0), "line 2: 'chain' is 10"),
        (state(0, 1, "a", 0.0, 1), "line 2: 'accepted' is 1; expected true, false or null"),
        (state(0, 1, "a", None), "chain 0: step 1 has no energy, unlike step 0"),
    ],
)
def test_bad_records_are_named(tmp_path, record, said):
    path = trail(tmp_path, state(0, 0, "a", 0.0), record)
    with pytest.raises(InputError) as raised:
        read_chains(read_trail(path))
    assert str(raised.value).startswith(said)


def test_energies_may_begin_once_no_mask_is_left(tmp_path):
    records = [state(0, 0, "a", None), state(0, 1, "b", None), state(0, 2, "b", 3.0), state(0, 3, "c", 5.0)]
    (chain,) = trail_figures(read_chains(read_trail(trail(tmp_path, *records)))).chains
    assert (chain.num_records, chain.mean_energy) == (4, 4.0)


def test_trails_that_are_none(tmp_path):
    path = tmp_path / "trail.jsonl"
    path.write_text("")
    with pytest.raises(InputError, match="the trail is empty"):
        read_chains(read_trail(path))
    path.write_text("chain 0\n")
    with pytest.raises(InputError, match="line 1: not JSON"):
        read_chains(read_trail(path))


def test_the_plot_holds_every_energy(tmp_path):
    chains = read_chains(read_trail(trail(tmp_path, *TWO_CHAINS)), burn_in=1)
    (axes,) = energy_figure(chains).axes
    lines = [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]
    assert lines[:2] == [([0, 1, 2], [1.0, 1.0, 4.0]), ([0, 1, 2, 3], [3.0, 2.0, 2.0, 5.0])]
    assert lines[2][0] == [1, 1]
    plot_energies(chains, tmp_path / "energies.png")
    assert (tmp_path / "energies.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SettingsError, match=r"\.png, \.svg, \.pdf"):
        plot_energies(chains, tmp_path / "energies.txt")
    silent = read_chains([TrailRecord(0, 0, "a", None, None)])
    with pytest.raises(InputError, match="no chain has energies"):
        energy_figure(silent)
