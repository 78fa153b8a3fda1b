"""Draws growth curves: `python plot_growth.py OUTPUT.svg`, in .venv-plot.

Standard input: a list of {"title", "x_label", "x": [...], "seconds": {contestant: [...]}}.
"""

from __future__ import annotations

import json
import sys

import matplotlib  # type: ignore[import-not-found,unused-ignore]

matplotlib.use("svg")
from matplotlib import pyplot  # type: ignore[import-not-found,unused-ignore]

pyplot.rcParams["svg.fonttype"] = "none"  # letters as text, not as outlines


def main() -> None:
    curves = json.load(sys.stdin)
    figure, panels = pyplot.subplots(1, len(curves), figsize=(4.5 * len(curves), 3.6), squeeze=False)
    for curve, panel in zip(curves, panels[0], strict=True):
        for name, seconds in curve["seconds"].items():
            panel.loglog(curve["x"], seconds, marker="o", label=name)
        panel.set(title=curve["title"], xlabel=curve["x_label"], ylabel="seconds")
        panel.set_xticks(curve["x"], [f"{x:,}" for x in curve["x"]], minor=False)
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(sys.argv[1], metadata={"Date": None})


if __name__ == "__main__":
    main()
