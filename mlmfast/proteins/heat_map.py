"""The table of all substitutions as a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mlmfast.extras import require
from mlmfast.io.output import os_errors_named
from mlmfast.proteins.mutations import RESIDUES
from mlmfast.proteins.variants import Float64Array
from mlmfast.types import Int64Array

RESIDUES_PER_STRIP = 100
STRIP_INCHES, LETTER_INCHES = 2.6, 0.115


def draw_heat_map(
    path: Path, sequence: str, table: Float64Array, *, offset: int = 0, title: str = ""
) -> None:
    """Writes a PNG of float64[L, 20] scores in nats: strips of up to 100 residues, a column for each with its
    number below and its letter above, a row for each amino acid, a dot on the wild type's own.

    Blue is more likely than the wild type, red less; the colours end at the 99th percentile of the absolute
    scores. Raises MissingExtraError without matplotlib, OutputError for a file that cannot be written.
    """
    new_figure = require("matplotlib.figure", extra="plot", purpose="a heat map").Figure
    starts = range(0, len(sequence), RESIDUES_PER_STRIP)
    width = min(len(sequence), RESIDUES_PER_STRIP)
    figure = new_figure(
        figsize=(1.6 + max(width, 20) * LETTER_INCHES, 0.6 + STRIP_INCHES * len(starts)), layout="constrained"
    )
    limit = float(np.percentile(np.abs(table), 99)) or 1.0
    axes = figure.subplots(len(starts), 1, squeeze=False)[:, 0]
    for start, axis in zip(starts, axes, strict=True):
        strip = np.full((len(RESIDUES), width), np.nan)
        letters = sequence[start : start + width]
        strip[:, : len(letters)] = table[start : start + width].T
        image = axis.imshow(strip, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto", interpolation="none")
        own = [x for x, letter in enumerate(letters) if letter in RESIDUES]
        axis.plot(own, [RESIDUES.index(letters[x]) for x in own], "k.", markersize=2)
        axis.set_yticks(range(len(RESIDUES)), RESIDUES, fontsize=5)
        numbers = number_ticks(start + offset + 1, len(letters))
        axis.set_xticks(numbers - (start + offset + 1), numbers, fontsize=6)
        above = axis.secondary_xaxis("top")
        above.set_xticks(range(len(letters)), letters, fontsize=5)
        above.tick_params(length=0, pad=1)
    figure.colorbar(image, ax=axes, label="score against the wild type, nats", shrink=0.8)
    figure.suptitle(title, fontsize=8)
    with os_errors_named(path):
        figure.savefig(path, format="png", dpi=150)


def number_ticks(first: int, count: int) -> Int64Array:
    """The multiples of 10 among the residues' numbers, or the first where there is none."""
    numbers = np.arange(first, first + count)
    tens = numbers[numbers % 10 == 0]
    return tens if len(tens) else numbers[:1]
