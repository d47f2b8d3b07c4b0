# `make check` is what a change has to pass. VENV is the virtual environment that launch/test.sh and
# launch/quickstart.sh make; without one, python3 runs the checks.
VENV ?= .venv
pytest := -m pytest -n 2 --dist worksteal
python := $(or $(wildcard $(VENV)/bin/python),python3)

.PHONY: check lint test test-all quickstart docs docs-serve notebooks clean

check: lint test

lint:
	$(python) -m ruff format --check .
	$(python) -m ruff check .
	$(python) -m mypy

test:
	$(python) $(pytest)

test-all:
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(python) $(pytest) -m ""

quickstart:
	launch/quickstart.sh

# The site, in build/site; and, anew at each change, at http://localhost:8000.
docs:
	$(python) -m mkdocs build --strict

docs-serve:
	$(python) -m mkdocs serve

# Runs them, and keeps what they show.
notebooks:
	$(python) notebooks/execute.py

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find cat_jax configs tests -name __pycache__ -type d -prune -exec rm -rf {} +
