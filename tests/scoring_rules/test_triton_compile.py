"""Every Triton kernel of the project compiled ahead of time for two generations of GPUs; none is needed."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "benchmarks"))

from kernel_bounds import KernelBound
from kernel_work import MODELS, TEXTS, VOCABULARIES
from resource_tables import triton_page

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDED = ROOT / "benchmarks" / "results" / "triton-resources.json"
KERNEL = re.compile(r"^def (\w+_kernel)\(", re.MULTILINE)
KEY = ("model", "vocab_size", "text_length")
MODELS_OF_SIZES = {
    384: {"6x384"},
    768: {"BERT-base"},
    1024: {"BERT-large"},
    32: {"6x384"},
    64: {"BERT-base", "BERT-large"},
    **{size: {f"heads of {size}"} for size in (12, 80, 128, 256)},
}
"""By the hidden size or the size of heads that a kernel is named after."""
THE_SAME = ("index", "row", "add-tail", "score", "coefficients")
"""In the names of kernels whose work no size of a model changes."""
SHARED_BYTES = 99 << 10
"""What one program may have on every GPU from compute capability 8.0 on; 8.6 has the least."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="triton is for Linux")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """In a process of its own: another test here may have put triton under its interpreter."""
    output = tmp_path_factory.mktemp("triton") / "found.json"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "triton_resources.py"), "--output", str(output)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert output.with_suffix(".md").read_text(encoding="utf-8").startswith("# ")
    found: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def functions() -> set[str]:
    """All kernels that the sources have."""
    sources = (ROOT / "mlmfast" / "kernels" / "triton").glob("*.py")
    return {name for source in sources for name in KERNEL.findall(source.read_text())}


def test_every_kernel_is_compiled(compiled: dict[str, Any], functions: set[str]) -> None:
    names = {(kernel["kernel"], kernel["capability"], kernel["dtype"]) for kernel in compiled["kernels"]}
    assert len(names) == len(compiled["kernels"])
    for capability in ("8.0", "9.0"):
        of_this = [kernel for kernel in compiled["kernels"] if kernel["capability"] == capability]
        assert {kernel["function"] for kernel in of_this} == functions
        for kernel in ("attention-64", "gelu", "add-norm-post-768", "statistics", "target-sweep"):
            assert {(kernel, capability, dtype) for dtype in ("float32", "bfloat16", "float16")} <= names


def test_no_register_is_spilled_and_shared_memory_suffices(compiled: dict[str, Any]) -> None:
    for kernel in compiled["kernels"]:
        assert kernel["stack_bytes"] == 0, kernel
        assert kernel["shared_bytes"] <= SHARED_BYTES, kernel
        assert kernel["programs_per_multiprocessor"] >= 1, kernel
        assert 0 < kernel["occupancy"] <= 1, kernel


def test_every_kernel_has_a_bound(compiled: dict[str, Any], functions: set[str]) -> None:
    """Of every model that it is for at texts of every length, and with both vocabularies where one is
    swept."""
    shapes = compiled["shapes"]
    bounded = [kernel for kernel in compiled["kernels"] if kernel["bounds"]]
    assert {kernel["function"] for kernel in bounded} == functions
    for kernel in compiled["kernels"]:
        bounds = [KernelBound(*bound) for bound in kernel["bounds"]]
        found = [tuple(shapes[bound.shape][name] for name in KEY) for bound in bounds]
        sweeps = "sweep" in kernel["kernel"] or kernel["kernel"] in ("rank", "statistics", "tail", "gradient")
        models = models_of(kernel["kernel"])
        assert len(found) == len(set(found))
        assert {model for model, _, _ in found} == models, kernel["kernel"]
        assert set(itertools.product(models, VOCABULARIES[:1], TEXTS)) <= set(found), kernel["kernel"]
        assert not sweeps or len(found) == len(models) * len(VOCABULARIES) * len(TEXTS)
        for bound in bounds:
            assert bound.bytes > 0, kernel
            assert bound.us > 0, kernel


def models_of(kernel: str) -> set[str]:
    """Those that a kernel is for; the first where its work is the same for all."""
    size = re.search(r"-(\d+)", kernel)
    if size is not None:
        return MODELS_OF_SIZES.get(int(size[1]), set())
    return {"BERT-base"} if any(part in kernel for part in THE_SAME) else set(MODELS)


def test_the_recorded_resources_are_these(compiled: dict[str, Any]) -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    if recorded["triton"] != compiled["triton"]:
        pytest.skip(f"recorded with triton {recorded['triton']}, this is {compiled['triton']}")
    assert recorded == compiled, "run benchmarks/triton_resources.py again"


def test_the_recorded_page_shows_the_recorded_resources() -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert RECORDED.with_suffix(".md").read_text(encoding="utf-8") == triton_page(recorded)
