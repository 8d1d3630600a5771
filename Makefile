# Targets of maxboard. Each does its own set-up; needed: Python 3.11+, make, and for Kafka Java 17+ and Maven.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DIR ?= .maxboard
READY := $(VENV)/.ready

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "Python 3.11 or later is needed: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 2; }
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(READY)

setup: $(READY) ## Make the virtual environment

demo: $(READY) ## The main job on real servers: runs through Kafka onto two boards; ends by itself
	@$(BIN)/maxboard demo --dir $(DIR)

run: $(READY) ## Stack, applier, generator, API and page until Ctrl-C; prints the address
	@$(BIN)/maxboard run --dir $(DIR)

# Most of the suite waits for sessions, elections and restarts: two files at a time, each with servers of its own.
test: $(READY) ## The whole suite on real servers
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder tests

unit: $(READY) ## The inner loop: what needs no Kafka
	@$(BIN)/python -m pytest -q tests/unit tests/laws tests/lua

lint: $(READY) ## Ruff
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(READY) ## mypy, strict
	@$(BIN)/mypy

bench: $(READY) ## Measure; writes docs/benchmarks.md
	@$(BIN)/python -m tests.benchmarks

bench-moderation: $(READY) ## Measure bans under load; writes docs/benchmarks.md
	@$(BIN)/python -m tests.benchmarks.moderating

bench-serving: $(READY) ## Measure submits and reads over HTTP; prints a table
	@$(BIN)/python -m tests.benchmarks.serving --seconds 10

MEMBERS ?= 5000000
bench-rebuild: $(READY) ## Measure both ways of a rebuild of MEMBERS=5000000; prints a table
	@$(BIN)/python -m tests.benchmarks.rebuild --members $(MEMBERS)

SEEDS ?= 10000
simulate: $(READY) ## Play SEEDS=10000 simulated schedules of workers and faults
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) --jobs 2

SEED ?= 1
MINUTES ?= 5
chaos: $(READY) ## Play random faults on real servers: SEED=1 MINUTES=5
	@$(BIN)/python -m tests.chaos --seed $(SEED) --minutes $(MINUTES)

CONFORMANCE ?= ../shared/conformance
SCENARIOS ?= $(wildcard $(CONFORMANCE)/scenarios/*.json)
conformance: $(READY) ## Play the scenarios in CONFORMANCE=folder through the command
	@$(BIN)/maxboard dev up --dir $(DIR)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python $(CONFORMANCE)/conformance.py --stack $(DIR)/maxboard.toml $(SCENARIOS)

clean: ## End the embedded stack, remove everything that was made here
	@if [ -x $(BIN)/maxboard ]; then $(BIN)/maxboard dev down --dir $(DIR) || true; fi
	@rm -rf $(VENV) $(DIR) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist

.PHONY: help setup demo run test unit lint types bench bench-moderation bench-serving bench-rebuild simulate chaos conformance clean
