#!/usr/bin/env bash
# Makes .venv-minicons, the virtual environment in which bench_scoring.py runs minicons.
# As with constraints.txt: where the package index serves only a CUDA build of torch, point pip at CPU builds.
set -euo pipefail
cd "$(dirname "$0")/.."
"${PYTHON:-python3}" -m venv .venv-minicons
.venv-minicons/bin/pip install --disable-pip-version-check --requirement benchmarks/peers-minicons.txt
