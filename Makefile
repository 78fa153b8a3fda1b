# `make demo` and `make test` set themselves up in .venv; nothing else has to be installed first but Python,
# a C++20 compiler and, from the package index, what pyproject.toml names.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
BUILD_TOOLS := scikit-build-core pybind11 cmake ninja

.PHONY: demo test lint format bench clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# An editable install that rebuilds the compiled core when a C++ file changes.
$(VENV)/.demo: pyproject.toml constraints.txt CMakeLists.txt | $(BIN)/python
	$(PIP) $(BUILD_TOOLS)
	$(PIP) --no-build-isolation --editable '.[torch]'
	touch $@

$(VENV)/.test: $(VENV)/.demo
	$(PIP) --no-build-isolation --editable '.[torch,dev]'
	touch $@

demo: $(VENV)/.demo
	$(BIN)/python examples/quickstart.py
	$(BIN)/mlmfast score examples/sentences.txt --per word --format tsv

test: $(VENV)/.test
	$(BIN)/python -m pytest

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.test
	$(BIN)/python -m pytest benchmarks --benchmark-only

clean:
	rm -rf build dist $(VENV)
