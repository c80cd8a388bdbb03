# Two commands do all the set-up, into .venv/: `make demo` and `make test`.
# PYTHON names another interpreter (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SYSTEM := $(VENV)/.system

.PHONY: help demo test test-all test-rest test-failed gpu real check format bench paper docs clean

help:
	@echo "make demo    the main job on questions of our own: no key, no GPU"
	@echo "make test    the tests to run after every step, but those of make check"
	@echo "make test-rest  the rest: every launcher, every combination, every figure of a set"
	@echo "make test-failed  what failed in the last run, one test after another"
	@echo "make test-all  all tests: those of check, test and test-rest"
	@echo "make gpu     a smoke test on a real GPU; skipped where there is none"
	@echo "make real    a real model of 135M parameters through the whole chain; fetched once, 100 MB"
	@echo "make check   ruff, strict types, layers, docs and schemas current"
	@echo "make bench   the figures of docs/performance.md"
	@echo "make paper   every table of the paper in miniature, killed twice; its numbers mean nothing"
	@echo "make docs    build the documentation into site/"
	@echo "make clean   remove .venv and what was built"

# torch goes first, by its pinned version: on some machines a bare `torch` pulls in CUDA packages
# of several gigabytes.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "convbench needs Python 3.11 or newer; give another with make PYTHON=python3.12")'
	@echo "installing into $(VENV)/ (a few minutes, once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=24"
	@$(BIN)/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)" -c constraints.txt
	@$(BIN)/python -m pip install --quiet -e ".[train,analysis,tasks,vision,docs,dev]" -c constraints.txt
	@touch $@

# System packages: installed where we are root and apt works, else the tests that need them skip.
$(SYSTEM): $(STAMP) tests/system.sh
	@sh tests/system.sh
	@touch $@

demo: $(STAMP)
	@$(BIN)/convbench demo
	@command -v convbench >/dev/null || echo "convbench lies in $(BIN); to type these lines, first: . $(BIN)/activate"

# The package is compiled before the workers start: in a fresh clone each would do it for itself.
test: $(STAMP) $(SYSTEM)
	@$(BIN)/python -m compileall -q -j 2 convbench trainers
	$(BIN)/python -m pytest -n 4 --dist worksteal -m "not exhaustive" --ignore=tests/house --ignore=tests/test_layers.py $(PYTEST_ARGS)

test-all: $(STAMP) $(SYSTEM)
	$(BIN)/python -m pytest -n 2 --dist worksteal $(PYTEST_ARGS)

# what test leaves out: marked `exhaustive`
test-rest: $(STAMP) $(SYSTEM)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m exhaustive $(PYTEST_ARGS)

# The tests that failed in the last run, again, one after another. A test of processes or pages can
# fail beside two others on a busy machine; one that fails alone too, or six at once, is a fault.
test-failed: $(STAMP) $(SYSTEM)
	@$(BIN)/python -c 'import json, sys; n = len(json.load(open(".pytest_cache/v/cache/lastfailed"))); sys.exit(f"{n} tests failed, too many to blame the machine" if n > 5 else 0)'
	$(BIN)/python -m pytest -n 0 --last-failed --last-failed-no-failures none

gpu: $(STAMP)
	$(BIN)/python -m pytest -q -rs tests/gpu

real: $(STAMP)
	$(BIN)/python -m tests.lab.smollm2
	CONVBENCH_REAL=1 $(BIN)/python -m pytest -q -rs tests/real tests/learn/test_smollm2_tokens.py

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/house tests/test_layers.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m tests.bench

paper: $(STAMP)
	$(BIN)/python -m tests.paper

docs: $(STAMP)
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) site dist .demo
