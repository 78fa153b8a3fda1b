"""A report as one HTML page: styles, script and charts inside, nothing fetched."""

from __future__ import annotations

import bisect
import math
from pathlib import Path
from typing import Any

from mlmfast.extras import require
from mlmfast.io.json_text import to_json
from mlmfast.reports.charts import curve_svg, interval_svg
from mlmfast.reports.contents import Report
from mlmfast.reports.differences import differences

TEMPLATES = Path(__file__).parent / "templates"
HEAT_LEVELS = (1.0, 2.0, 3.0, 5.0, 7.0, 10.0)
"""Nats below 0 from which a token is one step hotter."""
PURPOSE = "a report"


def require_packages() -> None:
    """Raises MissingExtraError if a page cannot be made for want of a package."""
    for package in ("jinja2", "rapidfuzz"):
        require(package, extra="nbest", purpose=PURPOSE)


def render(report: Report) -> str:
    """The page. Every text in it is escaped; the same report gives the same page.

    Raises MissingExtraError without the `nbest` extra.
    """
    jinja2 = require("jinja2", extra="nbest", purpose=PURPOSE)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES, encoding="utf-8"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "signed": signed, "count": count, "heat": heat, "value": value}
    environment.globals |= {
        "curve_svg": curve_svg,
        "interval_svg": interval_svg,
        "differences": differences,
        "heat_levels": HEAT_LEVELS,
        "probability": probability,
    }
    page: str = environment.get_template("page.html.jinja").render(
        report=report, made_with=rows(report.made_with)
    )
    return page.encode("utf-8", "replace").decode("utf-8")


def number(value: float) -> str:
    """Two decimals, with a real minus sign."""
    return f"{value:.2f}".replace("-", "\N{MINUS SIGN}")


def signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")


def count(value: int) -> str:
    return f"{value:,}"


def value(sentence_value: float) -> str:
    """A whole number as one: errors are counts."""
    return f"{sentence_value:.0f}" if sentence_value == round(sentence_value) else f"{sentence_value:.1f}"


def heat(log_prob: float) -> int:
    """How unlikely, from 0 to 6; what is not a number is the least likely."""
    return len(HEAT_LEVELS) if math.isnan(log_prob) else bisect.bisect_right(HEAT_LEVELS, -log_prob)


def probability(nats: float) -> str:
    """In percent, of a log-probability that is so far below 0."""
    return f"{100 * math.exp(-nats):.2g}%"


def rows(settings: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Every value under its dotted name."""
    found = []
    for name, item in settings.items():
        if isinstance(item, dict) and item:
            found += rows(item, f"{prefix}{name}.")
        else:
            found.append((prefix + name, item if isinstance(item, str) else to_json(item)))
    return found
