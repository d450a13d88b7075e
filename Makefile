# make demo    create .venv, install, compare five policies on the noisy-neighbour scenario
# make test    the same and every check: lint, types, tests, notebook, wheel
# make bench   the speed table (reports/bench.json)
# make lint    ruff and mypy alone
#
# Needs Python 3.11 or newer with its venv module, and nothing else. Versions come from constraints.txt; to move to newer ones, install
# ".[dev]" without it into a fresh environment, run the checks, and write down what `pip freeze --exclude-editable` says.
.PHONY: demo test bench lint

BIN := .venv/bin
PYTHONS := python3.14 python3.13 python3.12 python3.11 python3

# the environment variables reach the build of simkit itself too, which the option does not
INSTALL := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

demo: .venv/run
	$(BIN)/simkit run scenarios/noisy_neighbor.yaml

test: .venv/dev lint
	$(BIN)/python -m pytest

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/dev
	$(BIN)/python tests/benchmarks/bench.py

.venv/bin/python:
	@for python in $(PYTHONS); do \
	  if command -v $$python >/dev/null && $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "$$python -m venv .venv" && exec $$python -m venv --clear .venv; \
	  fi; \
	done; \
	echo "simkit needs Python 3.11 or newer with its venv module on the PATH (Debian: apt-get install python3 python3-venv)" >&2; exit 1

.venv/run: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) .
	@touch $@

.venv/dev: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) ".[dev]"
	@touch $@ .venv/run
