"""One part in this process: `python part.py NAME OUTPUT.json [--dry-run]`.

A part is a module with `run(dry, save)`, which returns what it found; save(found) keeps it so far.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any


def main() -> None:
    name, output, *options = sys.argv[1:]
    latest: dict[str, Any] = {}

    def save(found: dict[str, Any]) -> None:
        latest.update(found)
        started = Path(f"{output}.part")
        started.write_text(json.dumps(latest), encoding="utf-8")
        started.replace(output)

    try:
        save(importlib.import_module(name).run("--dry-run" in options, save))
    except Exception:
        save({"error": traceback.format_exc()[-4000:]})
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
