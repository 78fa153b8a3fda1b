"""The energies of chains against their steps, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from mlmfast.errors import InputError, OutputError, SettingsError
from mlmfast.evaluation.chains import Chain
from mlmfast.extras import require

PLOT_FORMATS = (".png", ".svg", ".pdf")
MOST_NAMED = 10
"""Chains that a legend names; that of more would hide the lines."""


def check_plot(path: Path) -> None:
    """Raises SettingsError for a name without a format we draw, MissingExtraError without matplotlib."""
    if path.suffix not in PLOT_FORMATS:
        raise SettingsError(f"{path}: a plot is written as {', '.join(PLOT_FORMATS)}; name it so")
    matplotlib_figure()


def plot_energies(chains: Sequence[Chain], path: Path) -> None:
    """Writes `energy_figure` in the format of the file's name.

    Raises OutputError if the file cannot be written, and as `energy_figure` and `check_plot`.
    """
    check_plot(path)
    figure = energy_figure(chains)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}; check the folder") from error


def energy_figure(chains: Sequence[Chain]) -> Any:
    """A matplotlib figure with a line per chain that has energies, and where burn-in ends.

    Raises InputError if no chain has any, MissingExtraError without matplotlib.
    """
    drawn = [chain for chain in chains if chain.energies]
    if not drawn:
        raise InputError("no chain has energies, so there is nothing to plot")
    figure = matplotlib_figure().Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for chain in drawn:
        axes.plot(chain.steps, chain.energies, linewidth=0.8, label=f"chain {chain.chain}")
    if drawn[0].burn_in:
        axes.axvline(drawn[0].burn_in, color="grey", linestyle="--", linewidth=0.8, label="end of burn-in")
    axes.set_xlabel("step")
    axes.set_ylabel("energy")
    if len(drawn) <= MOST_NAMED:
        axes.legend()
    return figure


def matplotlib_figure() -> ModuleType:
    return require("matplotlib.figure", extra="plot", purpose="a plot of energies")
