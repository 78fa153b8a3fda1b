"""Everything of ours that needs a GPU, checked and timed there: `make gpu-check`, then
`python benchmarks/gpu_check --timings`, each in under ten minutes.

Needs a python with CUDA torch, triton, transformers and pytest; a C++20 compiler, cmake, ninja, pybind11 and
scikit-build-core for the core, nvcc for the CUDA kernels; no network, and nothing of mlmfast built or
installed. Every part runs in a process of its own with a time limit, and results/DEVICE.json (or
DEVICE-timings.json) is written after each, an error standing where a part failed. The exit status is 1 if
one did. --dry-run goes through all parts on a CPU, with tiny sizes and Triton's interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BENCHMARKS, ROOT = HERE.parent, HERE.parent.parent
SITE = ROOT / "build" / "gpu-check" / "site"
"""Where core_build puts the package,"""
CUDA_LIBRARY = ROOT / "build" / "cuda" / "libmlmfast_cuda.so"
"""and cuda_build the kernels."""
SECONDS = 560
"""For all parts of one command together."""
CHECKS = {
    "device": 60,
    "core_build": 200,
    "packed_kernel_tests": 150,
    "packed_correctness": 180,
    "packed_profile": 60,
    "cuda_build": 150,
    "kernel_tests": 150,
    "operator_tests": 150,
    "engine_run": 90,
    "onnx_cuda": 90,
    "cuda_tests": 120,
    "rule_timings": 200,
}
TIMINGS = {"device": 60, "core_build": 200, "packed_timings": 440}
"""Modules beside this one, with the seconds that each may take."""
PARTS = CHECKS | TIMINGS


def run_part(name: str, dry: bool, seconds: float) -> dict[str, Any]:
    """What the part found, or its error, and the seconds it took."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found.json"
        command = [sys.executable, str(HERE / "part.py"), name, str(output), *(["--dry-run"] if dry else [])]
        part = subprocess.Popen(
            command, cwd=ROOT, env=environment(dry), stderr=subprocess.PIPE, text=True, start_new_session=True
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


def output_path(device: dict[str, Any], dry: bool, timings: bool = False) -> Path:
    name = "dry run" if dry else device.get("device", "unknown device")
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return BENCHMARKS / "results" / f"{slug}{'-timings' if timings else ''}.json"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--timings", action="store_true", help="the packed engine beside others")
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, help="these alone; core_build before packed ones"
    )
    parser.add_argument("--output", type=Path, help="default: results/DEVICE.json")
    options = parser.parse_args()
    group = PARTS if options.dry_run else TIMINGS if options.timings else CHECKS
    deadline = time.monotonic() + SECONDS
    results: dict[str, Any] = {}
    output = options.output
    for name in options.parts or group:
        seconds = min(PARTS[name], deadline - time.monotonic())
        print(f"{name}, up to {seconds:.0f} s", flush=True)
        results[name] = run_part(name, options.dry_run, seconds)
        output = output or output_path(results[name], options.dry_run, options.timings)
        output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(results[name], indent=1), flush=True)
    failed = [name for name, found in results.items() if "error" in found]
    print(f"{output}: {'failed: ' + ', '.join(failed) if failed else 'every part passed'}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
