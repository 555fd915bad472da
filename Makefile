# One command from a fresh checkout: every target that needs the environment makes it first.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: core long help setup demo run test containers chaos simulate lint format bench chart lock clean

PYTHON ?= python3
SEEDS ?= 10000
KILLS ?= 50
CLUSTER_KILLS ?= 12
SEED ?= 1
VENV := .venv
BIN := $(VENV)/bin
# Files whose age says what the environment holds; a changed lock makes it again.
PACKAGES := $(VENV)/.packages
JARS := $(VENV)/.jars
ARCHIVE := $(VENV)/.archive
# The machine's own certificates, as behind a company's proxy.
export UV_SYSTEM_CERTS := 1

help:  ## list the targets
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: $(PACKAGES) $(JARS) $(ARCHIVE)  ## create .venv from the lock and fetch the jars (PYTHON= names the Python)

# pip installs only uv, the version and hashes being those of the lock; uv does the rest.
$(PACKAGES): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) -V 2>/dev/null || echo 'not there')." \
	    "Name another one: make setup PYTHON=python3.12" >&2; exit 1; }
	@echo "setup: packages"
	@[ -x $(BIN)/pip ] && [ "$$($(BIN)/python -V 2>/dev/null)" = "$$($(PYTHON) -V)" ] \
	  || $(PYTHON) -m venv --clear $(VENV)
	@sed -n '/^uv==/,/[^\\]$$/p' requirements.lock > $(VENV)/uv.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/uv.lock
	@$(BIN)/uv pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes \
	  --build-constraints requirements.lock requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps \
	  --build-constraints requirements.lock --editable .
	@$(BIN)/python -m compileall -q placement schemas streaming
	@touch $@

$(JARS): streaming/runtime/jars.lock $(PACKAGES)
	@echo "setup: jars"
	@$(BIN)/python -m streaming.runtime
	@touch $@

# Half a minute once, which each start of Spark saves a tenth of.
$(ARCHIVE): $(JARS)
	@echo "setup: archive of Spark's classes"
	@$(BIN)/python -m streaming.class_archive
	@touch $@

demo: setup  ## watch it work: embedded broker, simulated nodes, what is lost heals
	@$(BIN)/placer demo

run: setup  ## the reconciler on an embedded broker, until Ctrl-C
	@$(BIN)/placer run --embedded

# Histories first: they are the longest tests, and whoever is done with them takes the rest.
core: $(PACKAGES)  ## the pure core in under a minute: tests, stories, a share of what is drawn
	@EXAMPLES=few $(BIN)/python -m pytest -q -n logical --no-loadscope-reorder \
	  tests/simulation tests/placement tests/needs tests/test_oracle.py tests/test_oracle_movement.py

# Three processes on two cores: one for the systems in tests/integration, which wait half of the time
# and are first in the order of the files, two for all else. With one for all else it took 1,129 s
# instead of 862 on a slow machine.
test: setup  ## all tests; what was skipped is named with its reason
	@$(BIN)/python -m pytest -rs -n 3 --no-loadscope-reorder

long: setup  ## what takes minutes: broker, network, disk, tasks, access, TLS, chart, inputs run again
	@$(BIN)/python -m pytest -rs -m long --ignore tests/integration/test_containers.py

containers: setup  ## all tests with brokers and the application in containers; needs Docker
	@CONTAINERS=required $(BIN)/python -m pytest -rs -m "long or not long" \
	  tests/integration/test_containers.py

chaos: setup  ## KILLS= times kill -9 of driver, JVM, workers, broker under load; then on a Spark cluster
	@$(BIN)/python -m pytest -q -m long tests/integration/test_broker_faults.py
	@$(BIN)/python -m tests.chaos --kills $(KILLS) --seed $(SEED)
	@$(BIN)/python -m tests.chaos --kills $(KILLS) --seed $(SEED) --standby
	@$(BIN)/python -m tests.chaos --kills $(CLUSTER_KILLS) --seed $(SEED) --cluster
	@$(BIN)/python -m tests.chaos --kills $(CLUSTER_KILLS) --seed $(SEED) --cluster --standby

simulate: setup  ## SEEDS= histories of simulated fleets, each step judged by an oracle
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) --jobs $$(nproc)

lint: setup  ## style, formatting and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: setup  ## apply the formatting that lint asks for
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup  ## placement and plans beside CRUSH and Kafka, then latency beside its floor
	@$(BIN)/python -m tests.benchmarks

chart: $(PACKAGES)  ## renew what deploy/helm and deploy/kubernetes are made of; needs Go, which builds helm once
	@$(BIN)/python -m schemas.generate
	@$(BIN)/python -m tests.chart

lock: $(PACKAGES)  ## renew requirements.lock from pyproject.toml
	@$(BIN)/uv pip compile --quiet --upgrade pyproject.toml --group dev --all-extras --universal \
	  --python-version 3.11 --generate-hashes --no-header --output-file requirements.lock

clean:  ## remove the environment and the tools' caches (the user's jar cache stays)
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
