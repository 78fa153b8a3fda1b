"""Everything of ours that needs a GPU, checked and timed there: `make gpu-check`, which takes at most
eight minutes, then `python benchmarks/gpu_check --timings`, less than ten. Where that is too short for all,
--vocabulary times the models with one vocabulary alone.

Needs a python with CUDA torch, triton, transformers and pytest; a C++20 compiler, cmake, ninja, pybind11 and
scikit-build-core for the core, nvcc for the CUDA kernels; no network, and nothing of mlmfast built or
installed. Peers that are not there are reported as absent: onnxruntime-gpu, with onnx and onnxscript, which
write its graphs; flash-attn, where torch has no varlen_attn; liger-kernel and cut-cross-entropy.

Every part runs in a process of its own, the most important ones first, and after each there is written, to
results/DEVICE.json (or DEVICE-timings.json, DEVICE-timings-VOCABULARY.json), what it found, also where it
failed or its time was over, and then an error. The exit status is 1 if there is one. --dry-run goes through
all parts on a CPU, with tiny sizes and Triton's interpreter.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deadline import ENDS
from vocabularies import ONE_ALONE, VOCABULARIES

HERE = Path(__file__).resolve().parent
BENCHMARKS, ROOT = HERE.parent, HERE.parent.parent
SITE = ROOT / "build" / "gpu-check" / "site"
"""Where core_build puts the package,"""
CUDA_LIBRARY = ROOT / "build" / "cuda" / "libmlmfast_cuda.so"
"""and cuda_build the kernels."""


@dataclass(frozen=True)
class Limit:
    """In seconds."""

    kept: int
    """For this part, whatever those before it take."""
    most: int
    """What it may take of what is not kept for others."""


CHECK_SECONDS, TIMING_SECONDS = 480, 560
"""For all parts of a command together."""
CHECKS = {
    "device": Limit(15, 60),
    "core_build": Limit(80, 200),
    "packed_correctness": Limit(90, 240),
    "packed_kernel_tests": Limit(50, 150),
    "packed_profile": Limit(30, 60),
    "device_processes": Limit(35, 90),
    "engine_run": Limit(20, 90),
    "cuda_build": Limit(30, 150),
    "kernel_tests": Limit(25, 150),
    "cuda_tests": Limit(15, 120),
    "operator_tests": Limit(20, 150),
    "rule_timings": Limit(15, 200),
    "onnx_cuda": Limit(15, 90),
}
"""Modules beside this one: first what others need, or what matters most."""
TIMINGS = {"device": Limit(15, 60), "core_build": Limit(80, 200), "packed_timings": Limit(300, 440)}
PARTS = CHECKS | TIMINGS


def seconds_for(names: Collection[str], left: float) -> float:
    """Of `left` seconds for parts, those for the first of them."""
    first, *later = (PARTS[name] for name in names)
    not_kept = left - sum(limit.kept for limit in later)
    return min(first.most, max(first.kept, not_kept), max(left, 0))


def run_part(name: str, dry: bool, seconds: float) -> dict[str, Any]:
    """What the part found, or its error, and the seconds it took."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found.json"
        command = [sys.executable, str(HERE / "part.py"), name, str(output), *(["--dry-run"] if dry else [])]
        part = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(dry) | {ENDS: str(time.time() + seconds)},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            _, said = part.communicate(timeout=max(seconds, 1))
            error = f"exit status {part.returncode}: {said[-4000:]}" if part.returncode else ""
        except subprocess.TimeoutExpired:
            os.killpg(part.pid, signal.SIGKILL)  # with whatever it started
            part.communicate()
            error = f"not finished after {seconds:.0f} seconds"
        found: dict[str, Any] = json.loads(output.read_text("utf-8")) if output.exists() else {}
    if error:
        found.setdefault("error", error)
    return found | {"seconds": round(time.monotonic() - start, 1)}


def environment(dry: bool) -> dict[str, str]:
    paths = [str(ROOT), str(BENCHMARKS), os.environ.get("PYTHONPATH", "")]
    if not dry:
        paths.insert(0, str(SITE))
    variables = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "HF_HUB_OFFLINE": "1"}
    if CUDA_LIBRARY.exists():
        variables["MLMFAST_CUDA_LIBRARY"] = str(CUDA_LIBRARY)
    if dry:
        variables |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return os.environ | variables


def output_path(
    device: dict[str, Any], dry: bool, timings: bool = False, vocabulary: int | None = None
) -> Path:
    name = "dry run" if dry else device.get("device", "unknown device")
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    kind = "-timings" if timings else ""
    return BENCHMARKS / "results" / f"{slug}{kind}{'' if vocabulary is None else f'-{vocabulary}'}.json"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--timings", action="store_true", help="the packed engine beside others")
    parser.add_argument(
        "--vocabulary", type=int, choices=VOCABULARIES, help="with --timings: models with this one alone"
    )
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, help="these alone; core_build before packed ones"
    )
    parser.add_argument("--output", type=Path, help="default: in results, named after the device")
    options = parser.parse_args()
    if options.vocabulary is not None:
        if options.dry_run or not options.timings:
            parser.error("--vocabulary goes with --timings, and without --dry-run")
        os.environ[ONE_ALONE] = str(options.vocabulary)
    group = PARTS if options.dry_run else TIMINGS if options.timings else CHECKS
    names = options.parts or list(group)
    allowed = math.inf if options.dry_run else TIMING_SECONDS if options.timings else CHECK_SECONDS
    ends = time.monotonic() + allowed
    results: dict[str, Any] = {}
    output = options.output
    for number, name in enumerate(names):
        seconds = seconds_for(names[number:], ends - time.monotonic())
        print(f"{name}, up to {seconds:.0f} s", flush=True)
        results[name] = run_part(name, options.dry_run, seconds)
        output = output or output_path(results[name], options.dry_run, options.timings, options.vocabulary)
        output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(results[name], indent=1), flush=True)
    failed = [name for name, found in results.items() if "error" in found]
    print(f"{output}: {'failed: ' + ', '.join(failed) if failed else 'every part passed'}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
