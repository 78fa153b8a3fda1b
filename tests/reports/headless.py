"""Pages as a browser shows them."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here: .ci/run installs Debian's where it may"
)
SCHEMES = {"dark": 0, "light": 1}


def dom_of(page: Path, fragment: str = "", *, scheme: str = "light") -> str:
    """The document as it stands after its script ran, without a network. Fails if the browser complains."""
    assert CHROMIUM is not None
    options = ["--headless=new", "--disable-gpu", "--dump-dom", "--enable-logging=stderr"]
    options += [
        f"--user-data-dir={page.parent / 'browser'}",
        "--window-size=1000,900",
        "--allow-file-access-from-files",
    ]
    options += [f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}"]
    options += ["--host-resolver-rules=MAP * ~NOTFOUND"]
    if os.geteuid() == 0:
        options.append("--no-sandbox")
    command = [CHROMIUM, *options, f"{page.as_uri()}{fragment}"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    complaints = [line for line in run.stderr.splitlines() if ":CONSOLE:" in line or "CONSOLE(" in line]
    assert complaints == []
    return run.stdout


def look(page: Path, script: str, fragment: str = "", **how: Any) -> Any:
    """What `script`, the body of a function that runs after the page's own, returns."""
    copy = page.with_name("looked-at.html")
    asked = f"document.body.dataset.found = JSON.stringify((() => {{ {script} }})());"
    copy.write_text(
        page.read_text("utf-8").replace("</body>", f"<script>{asked}</script></body>"), encoding="utf-8"
    )
    return found_in(dom_of(copy, fragment, **how))


def found_in(dom: str) -> Any:
    """The JSON that a script of the test left in the document."""
    found = re.search(r'<body data-found="([^"]*)"', dom)
    assert found is not None, "the script failed"
    return json.loads(html.unescape(found[1]))
