# A change has to pass `make check`. launch/test.sh and launch/quickstart.sh create the virtual environment
# VENV; without it, python3 runs the checks.
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

# Builds the site in build/site; docs-serve serves it at http://localhost:8000 and follows changes.
docs:
	$(python) -m mkdocs build --strict

docs-serve:
	$(python) -m mkdocs serve

# Runs the notebooks and saves their outputs.
notebooks:
	$(python) notebooks/execute.py

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find cat_jax configs tests -name __pycache__ -type d -prune -exec rm -rf {} +
