# The commands of the README. Needs python3 (3.11+) with venv, make and the package registries.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
WORKERS = auto # as many as cores

.PHONY: demo test test-quick soak check bench docs browser clean

demo: $(VENV)/.installed ## four ways to learn in one radio cell, on the embedded digits
	$(BIN)/folkman demo --out runs/demo-$$(date +%Y%m%d-%H%M%S)

test: $(VENV)/.installed-dev browser ## the whole suite, slow tests included
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-quick: $(VENV)/.installed-dev ## what starts no processes, waits for nothing, takes at most 0.5 s of CPU a test; the contract of four methods
	$(BIN)/python -m pytest -n auto --dist worksteal -m 'not soak and not process and not slow and not broad'

soak: $(VENV)/.installed-dev browser ## what takes minutes or more: kills, network namespaces, sixteen nodes, a million bad messages, the live page
	$(BIN)/python -m pytest -m soak -s
	$(BIN)/python benchmarks/page.py --minutes 10
	$(BIN)/python benchmarks/soak.py

check: $(VENV)/.installed-dev ## format, lint, types, import law
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/python -m pytest -q tests/test_import_law.py

bench: $(VENV)/.installed ## folkman and others at the same work; WORKS="W1m W2" AGAINST="torch jax" for a part of it
	$(BIN)/python -m benchmarks $(if $(WORKS),--work $(WORKS)) $(if $(AGAINST),--against $(AGAINST))

docs: $(VENV)/.installed-dev ## the documentation, into site/; every link and reference is checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

browser: # Debian's Chromium, where it may be installed; tests that need it say so elsewhere
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
	  echo "no chromium: the tests of the live page are skipped"

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
