# `make demo` and `make test` set themselves up in .venv; nothing else has to be installed first but Python,
# a C++20 compiler and, from the package index, what pyproject.toml names.
PYTHON ?= python3
comma := ,
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
BUILD_TOOLS := scikit-build-core pybind11 cmake ninja

CXX_BUILD := build/cpp

.PHONY: demo test test-cpp test-sanitized test-thread-sanitized fuzz lint format bench gpu-check gpu-timings clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# An editable install that rebuilds the compiled core when a C++ file changes.
$(VENV)/.demo: pyproject.toml constraints.txt CMakeLists.txt | $(BIN)/python
	$(PIP) $(BUILD_TOOLS)
	$(PIP) --no-build-isolation --editable .
	touch $@

$(VENV)/.test: $(VENV)/.demo
	$(PIP) --no-build-isolation --editable '.[torch,nbest,dev]' || \
		{ echo 'Was it torch that pip did not find? See constraints.txt for where CPU builds are.'; exit 1; }
	touch $@

demo: $(VENV)/.demo
	$(BIN)/python examples/quickstart.py
	$(BIN)/mlmfast score examples/sentences.txt --per word --format tsv

# A process per core; the tests of a file share its fixtures and stay in one.
# The last run is of AMX code on CPUs without AMX; pytest's faulthandler would take its traps.
test: $(VENV)/.test test-cpp
	$(BIN)/python -m pytest --numprocesses logical --maxprocesses 4 --dist loadfile
	LD_PRELOAD=$(abspath $(CXX_BUILD))/libtile_emulator.so $(BIN)/python -m pytest -p no:faulthandler \
		tests/test_native_rows.py

# $(1): build folder, $(2): cmake options.
define build_cpp
	$(BIN)/cmake -S . -B $(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DCMAKE_BUILD_TYPE=Release \
		-DMLMFAST_BUILD_PYTHON=OFF -DMLMFAST_BUILD_TESTS=ON $(2)
	$(BIN)/cmake --build $(1)
endef
RUN_CPP_TESTS := $(BIN)/ctest --output-on-failure --test-dir

test-cpp: $(VENV)/.demo
	$(call build_cpp,$(CXX_BUILD))
	$(RUN_CPP_TESTS) $(CXX_BUILD)

test-sanitized: $(VENV)/.demo
	$(call build_cpp,$(CXX_BUILD)-sanitized,-DMLMFAST_SANITIZE=address$(comma)undefined)
	$(RUN_CPP_TESTS) $(CXX_BUILD)-sanitized

# The matrix products' test has one thread, and takes minutes here.
# ThreadSanitizer cannot live with the randomised address space of some kernels; not everyone may turn it off.
NOT_RANDOMISED := $(shell setarch -R true 2>/dev/null && echo setarch -R)
test-thread-sanitized: $(VENV)/.demo
	$(call build_cpp,$(CXX_BUILD)-thread,-DMLMFAST_SANITIZE=thread)
	$(NOT_RANDOMISED) $(RUN_CPP_TESTS) $(CXX_BUILD)-thread --exclude-regex matrix_test

# Another SEED tries other calls.
FUZZ_SECONDS ?= 60
SEED ?= 1
fuzz: $(VENV)/.demo
	$(call build_cpp,$(CXX_BUILD)-sanitized,-DMLMFAST_SANITIZE=address$(comma)undefined)
	$(CXX_BUILD)-sanitized/c_api_fuzz tests/data/models $(FUZZ_SECONDS) $(SEED)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Beside the last run's times, which are kept in .benchmarks.
bench: $(VENV)/.test
	$(BIN)/python -m pytest benchmarks --benchmark-only --benchmark-autosave --benchmark-compare

# For a machine with a GPU, its own python with CUDA torch, and nothing of this installed; see benchmarks/gpu_check.
gpu-check:
	$(PYTHON) benchmarks/gpu_check

gpu-timings:
	$(PYTHON) benchmarks/gpu_check --timings

clean:
	rm -rf build dist $(VENV)
