"""Charts as SVG, in units that are pixels where the page is as wide as they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from xml.etree import ElementTree as Xml

import numpy as np

from mlmfast.reports.contents import WeightCurve
from mlmfast.rescoring.bootstrap import Comparison

WIDTH = 440
CURVE_HEIGHT = 250
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 10, 40
INTERVAL_HEIGHT = 62
MAX_STEPS = 1000
Scale = Callable[[float], float]


def curve_svg(curve: WeightCurve) -> str:
    """The metric as steps over the weight, the lines to compare with, the weight that was chosen as a dot,
    the folds' weights as ticks on the axis."""
    low, high = value_range(curve)
    x = scale(curve.low, curve.high, LEFT, WIDTH - RIGHT)
    y = scale(low, high, CURVE_HEIGHT - BOTTOM, TOP)
    label = f"{curve.metric} by the weight of {curve.term}"
    svg = canvas(CURVE_HEIGHT, label)
    for tick in ticks(low, high):
        element(svg, "line", "grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y(tick), y2=y(tick))
        element(svg, "text", "tick end", plain(tick), x=LEFT - 6, y=y(tick) + 4)
    for tick in ticks(curve.low, curve.high):
        element(svg, "text", "tick middle", plain(tick), x=x(tick), y=CURVE_HEIGHT - BOTTOM + 16)
    element(
        svg,
        "text",
        "tick middle",
        f"weight of {curve.term}",
        x=(LEFT + WIDTH - RIGHT) / 2,
        y=CURVE_HEIGHT - 6,
    )
    for number, line in enumerate(curve.lines):
        mark = element(
            svg, "line", f"line line-{number}", x1=LEFT, x2=WIDTH - RIGHT, y1=y(line.value), y2=y(line.value)
        )
        titled(mark, f"{line.name} {line.value:.2f}")
    element(svg, "path", "curve", d=steps(curve, x, y))
    for weight in curve.fold_weights:
        if curve.low <= weight <= curve.high:
            bottom = CURVE_HEIGHT - BOTTOM
            titled(
                element(svg, "line", "fold", x1=x(weight), x2=x(weight), y1=bottom - 7, y2=bottom),
                f"a fold's weight: {weight:.4g}",
            )
    dot = element(svg, "circle", "dot", cx=x(curve.weight), cy=y(curve.value), r=5)
    titled(dot, f"weight {curve.weight:.4g}: {curve.value:.2f}")
    return Xml.tostring(svg, encoding="unicode")


def value_range(curve: WeightCurve) -> tuple[float, float]:
    """Of all that is drawn, with some room."""
    edges = curve.profile.edges
    first, last = np.searchsorted(edges, [curve.low, curve.high])
    values = [*curve.profile.values[first : last + 1], curve.value, *(line.value for line in curve.lines)]
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 1.0
    return low - room, high + room


def steps(curve: WeightCurve, x: Scale, y: Scale) -> str:
    """The path of the curve in the shown range; of more than 1000 steps those at even distances."""
    edges, values = curve.profile.edges, curve.profile.values
    first, last = (int(place) for place in np.searchsorted(edges, [curve.low, curve.high]))
    shown = np.arange(first, last)
    if len(shown) > MAX_STEPS:
        grid = np.linspace(curve.low, curve.high, MAX_STEPS)
        shown = np.unique(np.searchsorted(edges, grid)).clip(first, last - 1)
    path = f"M{x(curve.low):.1f} {y(values[first]):.1f}"
    for place in shown:
        path += f"H{x(edges[place]):.1f}V{y(values[place + 1]):.1f}"
    return f"{path}H{x(curve.high):.1f}"


def interval_svg(found: Comparison) -> str:
    """A gain with its interval and where there would be none."""
    low, high = found.interval
    left, right = min(low, found.gain, 0.0), max(high, found.gain, 0.0)
    room = 0.08 * (right - left) or 1.0
    x = scale(left - room, right + room, RIGHT, WIDTH - RIGHT)
    svg = canvas(INTERVAL_HEIGHT, f"gain {found.gain:.2f}, 95% interval {low:.2f} to {high:.2f}")
    axis = INTERVAL_HEIGHT - 20
    for tick in ticks(left - room, right + room):
        element(svg, "line", "grid", x1=x(tick), x2=x(tick), y1=axis, y2=axis + 4)
        element(svg, "text", "tick middle", plain(tick), x=x(tick), y=axis + 17)
    element(svg, "line", "zero", x1=x(0), x2=x(0), y1=2, y2=axis + 4)
    element(svg, "line", "whisker", x1=x(low), x2=x(high), y1=axis / 2, y2=axis / 2)
    titled(element(svg, "circle", "dot", cx=x(found.gain), cy=axis / 2, r=6), f"gain {found.gain:.2f}")
    return Xml.tostring(svg, encoding="unicode")


def scale(low: float, high: float, start: float, end: float) -> Scale:
    """A linear map from [low, high] to [start, end]."""
    return lambda value: start + (value - low) / (high - low) * (end - start)


def ticks(low: float, high: float) -> Iterable[float]:
    """Round numbers within [low, high], 3 to 7 of them."""
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = max(factor * power for factor in (1, 2, 5) if factor * power <= rough)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def plain(number: float) -> str:
    return f"{number:.6g}".replace("-", "\N{MINUS SIGN}")


def canvas(height: int, label: str) -> Xml.Element:
    attributes = {"viewBox": f"0 0 {WIDTH} {height}", "role": "img", "aria-label": label}
    return Xml.Element("svg", attributes)


def element(
    parent: Xml.Element, tag: str, style: str, text: str | None = None, **places: float | str
) -> Xml.Element:
    """A child with numbers, or a path, as its attributes."""
    values = {name: value if isinstance(value, str) else f"{value:.1f}" for name, value in places.items()}
    child = Xml.SubElement(parent, tag, {"class": style, **values})
    child.text = text
    return child


def titled(mark: Xml.Element, text: str) -> None:
    Xml.SubElement(mark, "title").text = text
