"""The page in a browser: what it shows, and what its controls do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from headless import dom_of, found_in, look, needs_browser
from report_samples import HOSTILE, hostile_report

from mlmfast.reports import Report, render

pytestmark = needs_browser

SHOWN = """
const visible = (selector) => [...document.querySelectorAll(selector)].filter((e) => e.offsetParent !== null);
const ids = () => visible(".utterance").map((e) => e.dataset.id);
const maps = () => visible(".heat-map").map((e) => e.dataset.list);
const set = (id, value) => {
  const control = document.getElementById(id);
  control.value = value;
  control.dispatchEvent(new Event("input", { bubbles: true }));
};
"""
CONTRAST = """
const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
const light = (colour) => parts(colour).slice(0, 3).map((c) => c / 255)
  .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (e) => {
  const colour = getComputedStyle(e).backgroundColor;
  return (parts(colour)[3] ?? 1) ? colour : behind(e.parentElement ?? document.documentElement);
};
const contrast = (e) => {
  const [a, b] = [light(getComputedStyle(e).color), light(behind(e))];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
};
"""


def test_all_is_there_once_the_script_ran(page: Path, tuned_report: Report) -> None:
    dom = dom_of(page)
    assert f"{len(tuned_report.utterances.shown)} shown</output>" in dom
    maps = re.findall(r'<div class="heat-map" data-list="([^"]*)"( hidden="")?', dom)
    assert [id for id, hidden in maps if not hidden] == [tuned_report.heat_maps[0].id]
    assert len(maps) == len(tuned_report.heat_maps)


def test_the_address_chooses(page: Path, tuned_report: Report) -> None:
    wanted = tuned_report.heat_maps[3].id
    dom = dom_of(page, f"#show=better&sort=id&list={wanted}")
    assert f'data-list="{wanted}">' in dom
    assert dom.count('class="heat-map"') - dom.count(' hidden=""') < dom.count('class="heat-map"')
    assert f"{tuned_report.utterances.counts['better']} shown</output>" in dom
    found = look(page, SHOWN + "return [ids(), maps()];", f"#show=better&sort=id&list={wanted}")
    better = [item.id for item in tuned_report.utterances.shown if item.verdict == "better"]
    assert sorted(found[0]) == sorted(better)
    assert found[1] == [wanted]


def test_what_the_address_does_not_know(page: Path, tuned_report: Report) -> None:
    found = look(page, SHOWN + "return [ids().length, maps()];", "#show=unheard&sort=of&list=nothing")
    assert found == [len(tuned_report.utterances.shown), [tuned_report.heat_maps[0].id]]


def test_controls(page: Path, tuned_report: Report) -> None:
    shown = tuned_report.utterances.shown
    script = """
    const found = {};
    set("show", "same"); found.same = ids();
    set("show", ""); set("find", "BEING comparatively"); found.find = ids();
    set("find", ""); set("sort", "place"); found.place = ids();
    set("sort", "value"); found.value = visible(".utterance").map((e) => Number(e.dataset.value));
    set("sort", ""); found.change = ids();
    const last = [...document.querySelectorAll(".to-tokens")].at(-1);
    last.click(); found.clicked = [last.closest(".utterance").dataset.id, maps(), location.hash];
    set("list", document.getElementById("list").options[1].value); found.second = maps();
    return found;
    """
    found = look(page, SHOWN + script)
    assert found["same"] == [item.id for item in shown if item.verdict == "same"]
    assert found["find"] == ["LJ001-0002"]
    assert found["place"] == [item.id for item in sorted(shown, key=lambda item: item.place)]
    assert found["value"] == sorted((item.value_after for item in shown), reverse=True)
    assert found["change"] == [item.id for item in shown]
    id, maps, address = found["clicked"]
    assert maps == [id]
    assert address == f"#list={id}"
    assert found["second"] == [tuned_report.heat_maps[1].id]


def test_a_token_tells_its_log_probability(page: Path, tuned_report: Report) -> None:
    script = """
    const cell = visible(".heat-map .cell")[2];
    cell.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
    return [cell.textContent, document.getElementById("token").value, cell.classList.contains("chosen")];
    """
    text, told, chosen = look(page, SHOWN + script)
    cell = [c for c in tuned_report.heat_maps[0].rows[0].views[0].cells if c.log_prob is not None][2]
    assert text == cell.text
    assert told.startswith(f"{cell.text}: log-probability \N{MINUS SIGN}{-cell.log_prob:.2f}, probability ")
    assert chosen


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_text_is_readable_in_both_schemes(page: Path, scheme: str, dark: bool) -> None:
    script = """
    const contrasts = {};
    for (const e of visible("body *"))
      if ([...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) && !e.closest("svg"))
      {
        const kind = `${e.tagName} ${e.className}`;
        contrasts[kind] = Math.min(contrast(e), contrasts[kind] ?? Infinity);
      }
    return [matchMedia("(prefers-color-scheme: dark)").matches, light(behind(document.body)), contrasts];
    """
    is_dark, background, contrasts = look(page, SHOWN + CONTRAST + script, scheme=scheme)
    assert is_dark is dark
    assert (background < 0.1) is dark
    assert {f"SPAN cell h{level}" for level in range(7)} <= contrasts.keys()
    assert {kind: ratio for kind, ratio in contrasts.items() if ratio < 4.5} == {}


def test_a_phone_scrolls_in_one_direction(page: Path) -> None:
    """In a frame, as windows do not become that narrow."""
    frame = page.with_name("frame.html")
    widths = "[contentWindow.innerWidth, contentDocument.documentElement.scrollWidth]"
    frame.write_text(
        f'<body><iframe src="{page.name}" style="width: 360px; height: 800px; border: 0" '
        f'onload="document.body.dataset.found = JSON.stringify({widths})"></iframe></body>'
    )
    width, content = found_in(dom_of(frame))
    assert width == 360
    assert content <= width


def test_texts_stay_texts(tmp_path: Path) -> None:
    page = tmp_path / "hostile.html"
    page.write_text(render(hostile_report()), encoding="utf-8")
    script = """
    const texts = [...document.querySelectorAll("dd")].map((e) => e.textContent.trim());
    const scripts = document.querySelectorAll("script").length;
    const id = document.querySelector(".utterance").dataset.id;
    const title = document.querySelector("svg title").textContent;
    return [texts, document.querySelectorAll("img").length, scripts, window.broken ?? null, id, title];
    """
    texts, num_images, num_scripts, broken, id, title = look(page, script)
    assert HOSTILE in texts
    assert (num_images, num_scripts, broken) == (0, 2, None)  # the page's own script and this one
    assert id == HOSTILE
    assert title.startswith(HOSTILE)
