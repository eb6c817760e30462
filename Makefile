# The commands of the README. Needs python3 (3.11+) with venv, make and the package registries.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test check soak clean

demo: $(VENV)/.installed ## compare Algorithm 1 with FedAvg on the embedded digits
	$(BIN)/folkman run --out runs/demo-$$(date +%Y%m%d-%H%M%S)

test: $(VENV)/.installed-dev ## the whole suite, slow tests included
	$(BIN)/python -m pytest -n auto --dist loadfile

check: $(VENV)/.installed-dev ## format, lint, types, import law
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/python -m pytest -q tests/test_import_law.py

soak: $(VENV)/.installed-dev ## the long ones: a hundred kills, sixteen nodes for ten minutes, a million bad messages
	$(BIN)/python -m pytest -m soak -s

clean: ## remove the virtual environment and caches, keep runs/
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.installed
