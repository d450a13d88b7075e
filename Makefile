# make demo    create .venv, install, compare five policies on the noisy-neighbour scenario
# make test    the same and every check: lint, types, tests, notebook, wheel
# make bench   the speed table (reports/bench.json)
# make lint    ruff and mypy alone
.PHONY: demo test bench lint

PYTHON := $(firstword $(foreach v,python3.13 python3.12 python3.11 python3,$(shell command -v $(v) 2>/dev/null)))
BIN := .venv/bin

demo: .venv/run
	$(BIN)/simkit run scenarios/noisy_neighbor.yaml

test: .venv/dev lint
	$(BIN)/pytest

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/dev
	$(BIN)/python tests/benchmarks/bench.py

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "simkit needs Python 3.11 or newer on the PATH" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "simkit needs Python 3.11 or newer, found: $$($(PYTHON) --version)" >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/run: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

.venv/dev: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $@ .venv/run
