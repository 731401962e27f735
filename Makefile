# Every target creates .venv and installs what it needs, once. Only python3 and make are required.
# All paths are relative, so that a checkout in a folder with a space in its name works too.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin/python
PIP    := $(RUN) -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint format bench peers paper attacks docs matrix clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1|/p' Makefile | awk -F'|' '{printf "%-17s %s\n", $$1, $$2}'

$(VENV)/made:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 10) and "duramen needs Python 3.10 or newer, found %d.%d; name another with make PYTHON=python3.12" % v[:2])'
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@touch $@

# one stamp file per set of extras: nothing is installed again until pyproject.toml changes
$(VENV)/has-%: $(VENV)/made pyproject.toml
	@echo "installing duramen[$*]"
	@$(PIP) --editable '.[$*]'
	@touch $@

demo: $(VENV)/has-plot,progress  ## fit a million rows with outliers: all of them, a plain and a robust coreset
	@$(RUN) -m duramen demo

test: $(VENV)/has-test  ## the tests that a change is likely to break, in under five minutes
	@$(RUN) -m pytest -n auto --dist worksteal -m "not slow"

test-all: $(VENV)/has-test  ## all tests: also soaks, kills, power cuts, theorems, clusters, Spark, browsers
	@$(RUN) -m pytest -n auto --dist worksteal

lint: $(VENV)/has-lint  ## style, types, import directions
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy
	@$(VENV)/bin/lint-imports --no-logo

format: $(VENV)/has-lint  ## rewrite to the house style
	@$(RUN) -m ruff check --fix .
	@$(RUN) -m ruff format .

bench: $(VENV)/has-bench  ## speed, as ratios against peers measured in the same run
	@$(RUN) -m benchmarks

peers: $(VENV)/has-bench  ## comparison with other libraries in one run: needs the data and ten minutes
	@$(RUN) -m benchmarks.peers

paper: $(VENV)/has-plot,progress,frames  ## the paper's tables and figures, into docs/paper: needs the data and half an hour
	@$(RUN) -m experiments.paper all --out docs/paper

attacks: $(VENV)/has-plot,frames  ## robust classifiers under attack, into docs/attacks.md: needs the data and an hour
	@$(RUN) -m experiments.attacks

docs: $(VENV)/has-docs  ## the documentation, in site/
	@$(RUN) -m sphinx --fail-on-warning --keep-going --quiet -b html docs site
	@echo "site/index.html"

matrix: ## the tests on every Python from 3.10 to 3.13 that is installed
	@sh tools/matrix

clean:  ## remove what the other targets created
	rm -rf $(VENV) site .matrix .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
