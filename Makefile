# Every target sets up what it needs: a fresh clone needs Python 3.11+, make and Java 17+ only.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
export SPARK_LOCAL_IP ?= 127.0.0.1
# Bytecode is kept: hundreds of processes are started here, and each would compile the package anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup java javac chromium environment demo test test-servers costs compiled lint fuzz fuzz-format fuzz-plans fuzz-files oracle simulate mutants torture release-check docs bench bench-quick flink clean lock

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(VENV)/.ready: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "penstock: $(PYTHON) is older than 3.11; run make PYTHON=python3.11 (or newer)" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# What is imported is compiled then, which is a part of it.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

java:
	@version=$$(java -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -n 1); \
	if [ -z "$$version" ] || [ "$$version" -lt 17 ]; then \
	  echo "penstock: Java 17 or newer is needed (found: $${version:-none}); install a JRE, for example: apt-get install openjdk-17-jre-headless" >&2; exit 1; fi

environment: java $(VENV)/.ready

# The tests of the web UI drive a real browser. As root with apt-get it is installed; who has neither is told, once.
chromium:
	@mkdir -p $(VENV); \
	if command -v chromium || command -v chromium-browser || command -v google-chrome; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get; then \
	  echo "penstock: installing chromium for the tests of the web UI" >&2; export DEBIAN_FRONTEND=noninteractive; \
	  install="apt-get install -y --no-install-recommends chromium fonts-liberation"; \
	  { $$install || { apt-get update && $$install; }; } > $(VENV)/chromium.log 2>&1 \
	  || echo "penstock: chromium could not be installed ($(VENV)/chromium.log says why): THE TESTS OF THE WEB UI ARE SKIPPED" >&2; \
	else echo "penstock: there is no chromium, and no root with apt-get to install it: THE TESTS OF THE WEB UI ARE SKIPPED" >&2; \
	fi > /dev/null

setup: java ## Make the environment in .venv, and see to a browser for the web UI's tests
	@$(MAKE) --no-print-directory -j 2 environment chromium

demo: environment ## Run the main job on real data, kill a worker and compare with Spark
	@$(BIN)/penstock demo

lint: $(VENV)/.ready ## Format check, lint and types
	@$(BIN)/ruff format --check src simulator tests benchmarks demo deploy docs/*.py
	@$(BIN)/ruff check src simulator tests benchmarks demo deploy docs/*.py
	@$(BIN)/mypy

# It saves half of what a JVM costs until its first query is done. The tests run without it, too.
ARCHIVE := $(VENV)/spark-classes.jsa
$(ARCHIVE): $(VENV)/.ready tests/support/java_archive.py tests/support/quick_java.py
	-@$(BIN)/python -m tests.support.java_archive $@ > /dev/null 2>&1

# Whole files at a time: the tests of one share what is dear to set up. More workers than cores: tests wait for servers
# and for each other's processes.
WORKERS ?= 4
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
test: environment ## Lint, types and all tests but those with servers
	@$(MAKE) --no-print-directory -j 2 lint compiled $(ARCHIVE)
	@$(PYTEST) --ignore tests/servers

test-servers: setup $(ARCHIVE) ## Tests with servers: a browser, a Spark cluster, S3 and Kafka
	@$(PYTEST) tests/servers

costs: export PENSTOCK_WRITE_COSTS := 1
costs: test test-servers ## All tests, and what each file costs into tests/support/costs.json: dear ones begin first

# Once, and not by every worker. What is wrong is for the tests to say.
compiled: $(VENV)/.ready
	-@$(BIN)/python -m pytest --collect-only -qq > /dev/null 2>&1

fuzz: setup ## All tests in full, in another order, with new examples of every property: make test runs a part of the cases
	@PENSTOCK_EFFORT=1 $(PYTEST) --randomly-seed=default --hypothesis-seed=$$RANDOM

MINUTES ?= 1
fuzz-format: $(VENV)/.ready ## Fuzz the readers of snapshots, each for so long: make fuzz-format MINUTES=10
	@$(BIN)/python -m tests.fuzz.fuzz_format --seconds $$(( $(MINUTES) * 60 ))

fuzz-plans: setup ## Random DataFrames of all that Spark analyses: run, or refused by name: make fuzz-plans N=500 [SEED=7]
	@$(BIN)/python -m tests.fuzz.fuzz_plans $(if $(filter file,$(origin N)),100,$(N)) $(if $(SEED),--seed $(SEED))

fuzz-files: setup ## Random files against Spark's readers, N of each format: make fuzz-files N=1000 [SEED=7] [FORMATS=json,orc]
	@$(BIN)/python -m tests.fuzz.fuzz_files $(if $(filter file,$(origin N)),100,$(N)) $(if $(SEED),--seed $(SEED)) $(if $(FORMATS),--formats $(FORMATS))

N ?= 2000
# Schedules wait for memory more than for anything else: with huge pages they are half as quick again (glibc 2.35+).
simulate: export GLIBC_TUNABLES := glibc.malloc.hugetlb=1
simulate: export PYTHONMALLOC := malloc
simulate: $(VENV)/.ready ## Seeded schedules under faults, on all cores: make simulate N=20000 [SEED=7]
	@$(BIN)/python -m simulator $(N) $(if $(SEED),--seed $(SEED))

mutants: export GLIBC_TUNABLES := glibc.malloc.hugetlb=1
mutants: export PYTHONMALLOC := malloc
mutants: $(VENV)/.ready ## Every mutant, all calm and random schedules: make test runs one in four. make mutants WRITE=1 records
	@$(BIN)/python -m simulator --mutants $(if $(WRITE),--write)

oracle: setup ## Random DataFrames, killed and rescaled, against Spark's batch: make oracle N=200 [SEED=7]
	@$(BIN)/python -m tests.oracle.run_oracle $(if $(filter file,$(origin N)),50,$(N)) $(if $(SEED),--seed $(SEED))

HOURS ?= 0.1
torture: $(VENV)/.ready ## Random scenarios on real processes, killed and rescaled, CPUs oversubscribed: make torture HOURS=2 [SEED=7]
	@$(BIN)/python -m tests.scenarios.torture $(HOURS) $(if $(SEED),--seed $(SEED))

# From what fails soonest to what runs longest; the first failure ends it. Each day has seeds of its own.
SCHEDULES ?= 30000
FILES ?= 1000
PLANS ?= 300
TODAY := $(shell date +%Y%m%d)
STEP := @$(MAKE) --no-print-directory
release-check: ## All that is run before a release, in order: make release-check [SCHEDULES=30000] [FILES=1000] [PLANS=300]
	$(STEP) test
	$(STEP) test-servers
	$(STEP) mutants
	$(STEP) simulate N=$(SCHEDULES) SEED=$(TODAY)00000
	$(STEP) fuzz-format MINUTES=10
	$(STEP) fuzz-files N=$(FILES) SEED=$(TODAY)
	$(STEP) fuzz-plans N=$(PLANS) SEED=$(TODAY)
	$(STEP) oracle N=$(PLANS) SEED=$(TODAY)
	$(STEP) torture HOURS=2 SEED=$(TODAY)
	$(STEP) fuzz

docs: $(VENV)/.ready ## Write the parts of docs/protocol.md that are generated from the code
	@$(BIN)/python -m docs

bench: setup flink ## Run the benchmarks; writes docs/benchmarks.md and its charts
	@$(BIN)/python -m benchmarks

bench-quick: environment ## The ratios that matter most, in some minutes; keeps nothing. With Flink if make flink was run
	@$(BIN)/python -m benchmarks --quick

# A peer of the benchmarks, in an environment of its own. Tests do without it.
FLINK := .venv-flink
FLINK_JOB := $(wildcard benchmarks/peers/flink/job/*.java)
FLINK_SERVICES := benchmarks/peers/flink/job/META-INF
flink: java $(FLINK)/peer.jar ## Install Apache Flink in .venv-flink and compile its job: a peer of the benchmarks

$(FLINK)/.ready: benchmarks/peers/flink/requirements.txt
	@test -x $(FLINK)/bin/python || $(PYTHON) -m venv $(FLINK)
	@$(FLINK)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r $< \
	|| { echo "penstock: Apache Flink has no wheel for this Python or platform, or the package index cannot be reached (pip's words are above); Python 3.11 and 3.12 have one: rm -r $(FLINK); make flink PYTHON=python3.12" >&2; exit 1; }
	@touch $@

$(FLINK)/peer.jar: $(FLINK)/.ready $(FLINK_JOB) $(wildcard $(FLINK_SERVICES)/services/*) | javac
	@rm -rf $(FLINK)/classes
	@javac --release 17 -proc:none -Xlint:all,-serial,-processing,-classfile,-path -Werror -d $(FLINK)/classes \
	  -cp "$$(echo $(FLINK)/lib/python3.*/site-packages/pyflink/lib/)*" $(FLINK_JOB)
	@jar --create --file $@ -C $(FLINK)/classes . -C $(dir $(FLINK_SERVICES)) $(notdir $(FLINK_SERVICES))

javac: $(FLINK)/.ready
	@command -v javac > /dev/null || { \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  echo "penstock: installing a JDK, to compile the job that Flink runs" >&2; export DEBIAN_FRONTEND=noninteractive; \
	  install="apt-get install -y --no-install-recommends default-jdk-headless"; \
	  { $$install || { apt-get update && $$install; }; } > $(FLINK)/jdk.log 2>&1; \
	fi; \
	command -v javac > /dev/null || { \
	  echo "penstock: there is no javac; the job that Flink runs is compiled by a JDK of 17 or newer, for example: apt-get install openjdk-17-jdk-headless" >&2; exit 1; }; }

# With the hashes of all files of each version: they are for every platform and Python. The tool is no part of the
# environment.
HASHED = $(VENV)/lock/bin/uv pip compile --quiet --no-deps --generate-hashes --universal --python-version 3.11 --no-annotate --no-header -
lock: $(VENV)/.ready ## Refresh requirements.lock from the environment, and the hashes of the peers' requirements
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --target $(VENV)/lock uv
	@set -o pipefail; $(BIN)/python -m pip freeze --all --exclude-editable | grep -v -i "^penstock\|^pip==" \
	| $(HASHED) > requirements.lock.new && mv requirements.lock.new requirements.lock
	@set -o pipefail; for file in benchmarks/peers/flink/requirements.txt; do \
	  { grep '^#' $$file; grep -o '^[^# ]*==[^ ]*' $$file | $(HASHED); } > $$file.new && mv $$file.new $$file || exit 1; done

clean: ## Remove everything the targets made
	rm -rf $(VENV) $(FLINK) build dist demo/out .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
