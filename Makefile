# Everything runs in a virtual environment of its own; the two commands that matter are `demo` and `test`.

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
REPORT ?= demo-report
# A third of the time a test waits for its own processes, so three workers keep two cores busy.
JOBS ?= 3
FUZZ_SECONDS ?= 120
FUZZ_ENVELOPES ?= 1000000
FAULT_SCHEDULES ?= 1000

.PHONY: help demo test test-long lint fuzz fuzz-nightly faults-nightly contracts contracts-test contracts-nightly contracts-mutants contracts-lint clean

help:
	@echo "make demo       a whole swarm on this machine: chain, nodes, an attacker, a report (about three minutes)"
	@echo "make test       the test suite, by three workers on two cores (JOBS=N for another number)"
	@echo "make test-long  the few tests that take long: a founding followed step by step, killed experiments, lying auditors"
	@echo "make lint       ruff, mypy and the import rules alone"
	@echo "make fuzz       mutated envelopes for two minutes: pipeline against reference implementation"
	@echo "make fuzz-nightly  a million of them; figures also in fuzz-report.json"
	@echo "make faults-nightly  a thousand fault schedules for the ledger; figures also in fault-report.json"
	@echo "make contracts  compile the contracts again (needs Node.js)"
	@echo "make contracts-test     the contracts' own tests (needs Node.js)"
	@echo "make contracts-nightly  the same with a million calls per invariant"
	@echo "make contracts-mutants  break one rule of the contracts after the other: their tests must notice each"
	@echo "make contracts-lint     Slither over the contracts (needs Node.js)"
	@echo "make clean      remove the virtual environment and what the other targets made"

demo: $(VENV)/.core
	$(BIN)/sapo testnet up --nodes 4 --attackers 1 --epochs 3 --report $(REPORT)

test: $(VENV)/.dev contracts/node_modules/.installed tests/chain/node_modules/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not long" --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder

test-long: $(VENV)/.dev contracts/node_modules/.installed tests/chain/node_modules/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m long

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

fuzz: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/run.py --seconds $(FUZZ_SECONDS) --seed $$(date +%j)

fuzz-nightly: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/run.py --count $(FUZZ_ENVELOPES) --json fuzz-report.json

faults-nightly: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/run_schedules.py --count $(FAULT_SCHEDULES) --json fault-report.json

contracts: contracts/node_modules/.installed
	cd contracts && node build.mjs

contracts-test: contracts/node_modules/.installed
	cd contracts && FORGE_SNAPSHOT_CHECK=true node forge.mjs test

contracts-nightly: contracts/node_modules/.installed
	cd contracts && FOUNDRY_PROFILE=nightly FORGE_SNAPSHOT_CHECK=true node forge.mjs test

contracts-mutants: contracts/node_modules/.installed
	cd contracts && node mutants.mjs

contracts-lint: $(VENV)/.slither contracts/node_modules/.installed
	cd contracts && PATH="$$PWD/node_modules/.bin:$$PATH" $(abspath $(VENV))/slither/bin/slither . --config-file slither.json

clean:
	rm -rf $(VENV) $(REPORT) .fuzz fuzz-report.json fault-report.json contracts/node_modules contracts/out contracts/cache \
	  tests/chain/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "error: sapo needs Python 3.11 or newer, $(PYTHON) is older"; \
	       echo "hint: name one with: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11"; exit 3; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.core: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[testnet]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.core

# Slither pins web3 and others its own way, so it gets an environment of its own.
$(VENV)/.slither: | $(VENV)/bin/python
	$(BIN)/python -m venv $(VENV)/slither
	$(VENV)/slither/bin/python -m pip install --quiet slither-analyzer==0.11.6
	@touch $@

# The compiler behind the committed contract artefacts, and forge; without Node.js their tests are skipped by name.
contracts/node_modules/.installed: contracts/package-lock.json
	@if command -v npm >/dev/null; then \
	  (cd contracts && npm ci --ignore-scripts --no-audit --no-fund --silent && touch node_modules/.installed) \
	    || echo "note: npm could not install the Solidity compiler and forge; the recompile check and the Foundry tests will be skipped"; \
	else echo "note: no Node.js here; the contracts' recompile check and Foundry tests will be skipped"; fi

# A chain that is not ours, for the tests that want one; without Node.js they are skipped by name.
tests/chain/node_modules/.installed: tests/chain/package-lock.json
	@if command -v npm >/dev/null; then \
	  (cd tests/chain && npm ci --ignore-scripts --no-audit --no-fund --silent && touch node_modules/.installed) \
	    || echo "note: npm could not install anvil; the tests against another chain will be skipped"; \
	else echo "note: no Node.js here; the tests against another chain will be skipped"; fi
