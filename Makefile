# Everything sets itself up in .venv first, and again only when pyproject.toml or constraints.txt changed.
# Variables: ARGS (of train), NAMES (of data), DIR (of dashboard), PYTHON (3.11 or newer), UV (empty: install with pip
# alone).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

ARGS ?= +experiment=copy_task
NAMES ?= shakespeare reviews brown japanese_ner git_messages digits fashion_mnist japanese_vowels
DIR ?= runs
PYTHON ?= python3
UV ?= $(shell command -v uv)

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: train
train: .venv/ready ## Train; ARGS="+experiment=copy_task model/cell=gru" says what
	@$(BIN)/python -m seqlab.train $(ARGS)

.PHONY: data
data: .venv/ready ## Fetch the real data that tasks read, once; NAMES="reviews digits" says which
	@$(BIN)/python -m seqlab.data.fetch $(NAMES)

.PHONY: dashboard
dashboard: .venv/ready ## Look at runs in a browser, without a network; DIR=multirun/TIME says which; Ctrl-C ends it
	@$(BIN)/python -m seqlab.dashboard $(DIR)

.PHONY: test
test: .venv/ready ## Run the tests but for the slow ones (a few minutes)
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not slow"

.PHONY: test-all
test-all: .venv/ready ## Run all tests
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile

.PHONY: check
check: .venv/ready ## Check format, lint and types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

.PHONY: bench
bench: .venv/bench ## Measure the speed against PyTorch and Flax, the start, and the replicas
	@for file in benchmarks/*.py; do $(BIN)/python $$file; done

.PHONY: gallery
gallery: .venv/ready ## Make docs/gallery.md: a figure of each kind
	@$(BIN)/python docs/gallery.py

.PHONY: clean
clean: ## Remove .venv and what tools leave behind, but no results
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache build dist
	@find . -name __pycache__ -prune -exec rm -rf {} +

.venv/ready: pyproject.toml constraints.txt
	@echo "Setting up .venv (about a minute, once) ..."
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else f"seqlab needs Python 3.11 or newer, $(PYTHON) is {v[0]}.{v[1]}: make PYTHON=...")'
	@$(PYTHON) -m venv .venv
	@$(if $(UV),$(UV) pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable ".[dev]" ||) \
		$(PIP) --editable ".[dev]"
	@touch $@

# PyTorch comes by pip alone: its index is often configured there.
.venv/bench: .venv/ready
	@$(PIP) --editable ".[bench]"
	@touch $@
