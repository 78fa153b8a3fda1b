"""What a result was measured on: machine, versions, load."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from mlmfast import _core


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    name = fields.get("model name") or platform.processor()
    if "model" in fields:
        name += f" (family {fields['cpu family']}, model {fields['model']})"
    return name


def load_average() -> str:
    return " ".join(f"{load:.1f}" for load in os.getloadavg())


def banner(threads: int = 1) -> str:
    """Lines that go above every table."""
    packages = ", ".join(f"{name} {metadata.version(name)}" for name in ("mlmfast", "torch", "transformers"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return "\n".join(
        [
            f"- {cpu_name()}; {cores} cores, threads used: {threads}",
            f"- CPU features: {' '.join(_core.cpu_features())}",
            f"- {packages}, Python {platform.python_version()}, {platform.system()}",
            f"- load average at the start: {load_average()}",
        ]
    )
