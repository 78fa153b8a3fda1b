"""The contestants of bench_engine.py."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rounds import EXACT, QUANTISED, ROUNDED, Bound, Contestant

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(sys.executable)
GRAPH = ROOT / ".venv-graph" / "bin" / "python"
CTRANSLATE2 = ROOT / ".venv-ctranslate2" / "bin" / "python"
BF16 = replace(ROUNDED, at_least=3e-4)
"""For products of bfloat16 inputs; a smaller difference from float32 would show that there are none."""
WHOLLY_BF16 = replace(BF16, per_token=0.2)
"""For peers that keep more than the matrix products in bfloat16: 0.10 on the texts of the default section."""

LOOP, FLOAT32, TORCH_BF16, OPENVINO_BF16 = (
    "plain loop",
    "float32 peers",
    "torch bfloat16",
    "OpenVINO bfloat16",
)
OURS_EXACT, OURS_BF16, OURS_INT8 = "mlmfast exact", "mlmfast bfloat16", "mlmfast int8"


@dataclass(frozen=True)
class Entry:
    """A contestant that can be started on any model. group: what it counts as in the goals."""

    group: str
    name: str
    python: Path
    arguments: tuple[str, ...]
    bound: Bound

    @property
    def compiled(self) -> bool:
        return "--compile" in self.arguments

    @property
    def needs_graph(self) -> bool:
        return self.python == GRAPH


def _ours(group: str, precision: str, bound: Bound) -> Entry:
    arguments = ("mlmfast", "--engine", "native", "--precision", precision)
    return Entry(group, f"mlmfast native, {precision}", HERE, arguments, bound)


def _torch(group: str, name: str, bound: Bound, *arguments: str) -> Entry:
    return Entry(group, f"torch gathered, {name}", HERE, ("torch", *arguments), bound)


ENTRIES = (
    Entry(LOOP, "plain loop, float32", HERE, ("plain",), EXACT),
    _torch(FLOAT32, "float32", EXACT, "--precision", "float32"),
    _torch(FLOAT32, "float32, compiled", EXACT, "--precision", "float32", "--compile"),
    Entry(FLOAT32, "ONNX Runtime, float32", GRAPH, ("onnxruntime",), EXACT),
    Entry(FLOAT32, "OpenVINO, float32", GRAPH, ("openvino", "--precision", "float32"), EXACT),
    Entry(FLOAT32, "CTranslate2, float32", CTRANSLATE2, ("ctranslate2", "--precision", "float32"), EXACT),
    _torch(TORCH_BF16, "cast to bfloat16", WHOLLY_BF16, "--precision", "bfloat16"),
    _torch(TORCH_BF16, "cast to bfloat16, compiled", WHOLLY_BF16, "--precision", "bfloat16", "--compile"),
    _torch(TORCH_BF16, "autocast to bfloat16", WHOLLY_BF16, "--precision", "autocast"),
    Entry(OPENVINO_BF16, "OpenVINO, bfloat16", GRAPH, ("openvino", "--precision", "bfloat16"), WHOLLY_BF16),
    _ours(OURS_EXACT, "float32", EXACT),
    _ours(OURS_EXACT, "bf16x3", EXACT),
    _ours(OURS_BF16, "bfloat16", BF16),
    _ours(OURS_INT8, "int8", QUANTISED),
)
OURS = tuple(entry for entry in ENTRIES if entry.arguments[0] == "mlmfast")
GROUPS = {entry.name: entry.group for entry in ENTRIES}


def contestants(
    folder: Path, *, entries: Sequence[Entry], graph: Path | None = None, compiled: bool = True
) -> list[Contestant]:
    """The entries on a model. graph: its exported graph, for those that need one; None if there is none."""
    field = []
    for entry in entries:
        kind, *options = entry.arguments
        reason = None
        if entry.compiled and not compiled:
            reason = "compiling takes minutes and was not asked for"
        if entry.needs_graph and graph is None and GRAPH.exists():
            reason = "the graph could not be exported"
        if entry.needs_graph and graph is not None:
            options += ["--graph", str(graph)]
        arguments = [kind, str(folder), *options]
        field.append(Contestant(entry.name, entry.python, arguments, entry.bound, reason))
    return field


def export_graph(folder: Path, graph: Path) -> Path | None:
    """Writes a model's graph; None, with the reason on standard error, if that fails."""
    script = Path(__file__).with_name("export_graph.py")
    if not GRAPH.exists():
        return None
    ran = subprocess.run([GRAPH, script, folder, graph], stderr=subprocess.PIPE, text=True, check=False)
    if ran.returncode != 0:
        print(ran.stderr, file=sys.stderr)
        return None
    return graph
