"""The picture of a table: a PNG whose colours are those of its scores."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from mlmfast import MissingExtraError, OutputError
from mlmfast.proteins.heat_map import draw_heat_map, number_ticks


def coloured_pixels(path: Path, table: np.ndarray, sequence: str) -> dict[int, int]:
    """Pixels of the table's strips that are plainly red (channel 0) and blue (channel 2)."""
    draw_heat_map(path, sequence, table)
    pixels = matplotlib.image.imread(path)[..., :3]
    strips = pixels[:, : int(pixels.shape[1] * 0.75)]  # the scale of colours is on the right
    return {
        channel: int((strips[..., channel] - strips[..., [1, 2 - channel]].max(axis=2) > 0.15).sum())
        for channel in (0, 2)
    }


@pytest.mark.parametrize("length", [1, 110])
def test_colours_are_those_of_the_scores(tmp_path: Path, length: int) -> None:
    sequence = ("MKVX" * length)[:length]
    table = np.zeros((length, 20))
    table[:, 5] = 2.0
    path = tmp_path / "map.png"
    for scores, channel in ((table, 2), (-table, 0)):
        found = coloured_pixels(path, scores, sequence)
        assert found[channel] > 100
        assert found[2 - channel] == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_table_of_zeros_has_no_colour(tmp_path: Path) -> None:
    assert coloured_pixels(tmp_path / "map.png", np.zeros((3, 20)), "MKV") == {0: 0, 2: 0}


def test_numbers_below() -> None:
    assert number_ticks(8, 15).tolist() == [10, 20]
    assert number_ticks(3, 2).tolist() == [3]


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write"):
        draw_heat_map(tmp_path / "none" / "map.png", "MK", np.zeros((2, 20)))


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"a heat map needs .*pip install 'mlmfast\[plot\]'"):
        draw_heat_map(tmp_path / "map.png", "MK", np.zeros((2, 20)))
