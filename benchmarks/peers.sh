#!/usr/bin/env bash
# Makes .venv-NAME for each benchmarks/peers-NAME.txt, or for the NAMEs given: the virtual environments in which
# the benchmarks run what they compare with. bench_scoring.py and bench_engine.py say which they miss.
# torch is the CPU build: see constraints.txt for where pip finds it.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -eq 0 ]; then
  for list in benchmarks/peers-*.txt; do
    name=${list#benchmarks/peers-}
    set -- "$@" "${name%.txt}"
  done
fi
for name in "$@"; do
  "${PYTHON:-python3}" -m venv --clear ".venv-$name"
  ".venv-$name/bin/pip" install --disable-pip-version-check --requirement "benchmarks/peers-$name.txt"
done
