# The targets. Each of them, except clean and test-pythons, sets up .venv first if it does not exist.
#
#   make                 check and test
#   make setup           .venv with everything that the demo, the checks and the tests use
#   make demo            attack wallets from several processes, then process the log on Spark; takes a minute
#   make test            the tests, without the slow ones; of Spark's, one test of each capability
#   make test-spark      the other tests on Spark, without the slow ones
#   make test-slow       the slow tests: Spark clusters, Spark Connect, kill -9, workers, soak
#   make test-thorough   the tests that try random cases, with many more of them
#   make test-all        all of these
#   make brokers         install NATS, RabbitMQ and Redis for the next target, with apt-get as root
#   make test-brokers    the outbox on real brokers, which the tests start, kill and start again on loopback
#   make soak-brokers    kills, suspends and restarts brokers and processes that publish to them, at random, for a minute
#   make test-fdb        the FoundationDB tests on a real cluster: FENCEPOST_TEST_FDB=<cluster file>
#   make test-pythons    the core suites, on each of Python 3.11, 3.12 and 3.13 that is installed
#   make soak            kills, suspends and pauses processes that share consumers, for some minutes
#   make torture         random attacks on the stores, for some minutes
#   make check           ruff, mypy, import-linter, typed samples by mypy and pyright
#   make docs            the documentation as a site, in build/site; fails on a broken link
#   make dist            the source distribution and the wheel, in dist; tests the wheel in a fresh environment
#   make bench           compare with other stores, in one run, as ratios
#   make bench-postgres  the same for the PostgreSQL engine
#   make bench-spark     the same for the data pipeline
#   make bench-wallet    the same for a whole service
#   make bench-server    the same for the server
#   make bench-consumers read models, wake-up and idle consumers, beside a plain read
#   make proofs          the proofs, with Coq
#   make models          the models, with TLC
#   make clean           remove everything that these targets create, except .venv and .venv-*
#
# PYTHON is the interpreter that .venv is made with: make setup PYTHON=python3.13

PYTHON ?= python3
EXTRAS := postgres,foundationdb,server,spark,lake,dev
BROKER_EXTRAS := kafka,nats,rabbitmq,redis
BIN := .venv/bin
READY := .venv/ready
PYTEST := -q -n 2 --dist worksteal

# Tests that try cases at random: many in test-slow, and few in test.
THOROUGH = $(shell grep -rl --include='test_*.py' 'tests.support.thorough' tests)

# Debian's package client waits without end for a server that accepts the connection and then sends nothing.
APT_UPDATE := for try in 1 2 3; do timeout 120 apt-get update -qq && break; done

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.DEFAULT_GOAL := all
.PHONY: all setup demo test test-spark test-slow test-thorough test-all brokers test-brokers soak-brokers test-fdb test-pythons check docs dist torture soak bench bench-postgres bench-spark bench-wallet bench-server bench-consumers clean

all: check test

setup: $(READY)

# A set-up runs again when pyproject.toml or constraints.txt are newer than its file `ready`.
define create_environment
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Fencepost needs Python 3.11 or newer, and $(PYTHON) is older; name another: make PYTHON=python3.13" >&2; exit 1; }
	@# Debian has the module venv in a package of its own.
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    test "$$(id -u)" = 0 && { $(APT_UPDATE); apt-get install -y -qq python3-venv >/dev/null; }; } || { \
	    echo "Python cannot create virtual environments here: install the package python3-venv, then run make again" >&2; exit 1; }
	@echo "Setting up $(@D), which takes a minute or more the first time ..."
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install -qq --upgrade pip -c constraints.txt
	@$(@D)/bin/python -m pip install -qq -e ".[$(1)]" -c constraints.txt
	@touch $@
endef

$(READY): pyproject.toml constraints.txt
	$(call create_environment,$(EXTRAS))

# The documentation has an environment of its own, because nothing else needs its packages.
.venv-docs/ready: pyproject.toml constraints.txt
	$(call create_environment,docs)

# The clients of the brokers are added to .venv when they are first needed.
.venv/brokers: $(READY)
	@$(BIN)/python -m pip install -qq -e ".[$(BROKER_EXTRAS)]" -c constraints.txt
	@touch $@

demo: $(READY)
	@$(BIN)/python -m examples.demo

# These take minutes: they start clusters, kill and suspend processes again and again, and run the contract suite over HTTP.
# Audits, pipelines, frames over lakes, notebooks and rebuilds on Spark are here as well: each of
# their tests runs many Spark jobs.
SLOW := tests/spark/slow tests/server/slow tests/server/test_workers.py tests/postgres/slow tests/consumers/slow tests/consumers/test_taking_over.py \
    tests/consumers/outbox/test_taking_over.py tests/soak \
    $(addprefix tests/spark/test_,auditing.py compaction.py following.py frames.py notebook.py pipeline.py rebuilding.py)

# The tests on Spark, except those of `make test`: one of each capability, and those that start no session.
SPARK := $(filter-out $(SLOW) $(addprefix tests/spark/test_,arrow.py capabilities.py delivery.py delta.py lake_events.py \
    lake_matching.py object_lakes.py selection.py sqlite_scan.py),$(wildcard tests/spark/test_*.py))

test: $(READY)
	$(BIN)/python -m pytest $(PYTEST) $(addprefix --ignore=,$(SLOW) $(SPARK) tests/brokers)

test-spark: $(READY)
	$(BIN)/python -m pytest $(PYTEST) $(SPARK)

test-slow: $(READY)
	$(BIN)/python -m pytest $(PYTEST) $(SLOW)

# The tests that try random cases, with many more of them than in make test.
test-thorough: $(READY)
	FENCEPOST_TEST_THOROUGH=1 $(BIN)/python -m pytest $(PYTEST) $(THOROUGH)

test-all: test test-spark test-slow test-thorough

# As root this installs Debian's packages; otherwise it says what to install.
BROKERS := nats-server rabbitmq-server redis-server
brokers:
	@PATH="$$PATH:/usr/sbin:/usr/local/sbin"; missing=; \
	for each in $(BROKERS); do command -v $$each >/dev/null || missing="$$missing $$each"; done; \
	if test -z "$$missing"; then echo "Installed: $(BROKERS)"; \
	elif test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then $(APT_UPDATE); apt-get install -y -qq $$missing; \
	else echo "Install these brokers, then run make test-brokers:$$missing" >&2; exit 1; fi

test-brokers: .venv/brokers
	$(BIN)/python -m pytest -q tests/brokers

soak-brokers: .venv/brokers
	$(BIN)/python -m tests.brokers.soak

# These kill and suspend server processes of the cluster that FENCEPOST_TEST_FDB names: use a cluster made for tests.
test-fdb: $(READY)
	@test -n "$(FENCEPOST_TEST_FDB)" || { \
	    echo "Name the cluster file of a FoundationDB cluster made for tests: make test-fdb FENCEPOST_TEST_FDB=fdb.cluster" >&2; exit 1; }
	FENCEPOST_TEST_FDB="$(FENCEPOST_TEST_FDB)" $(BIN)/python -m pytest -q --timeout 3600 \
	    tests/foundationdb/test_contract.py tests/foundationdb/cluster

# Each version gets an environment of its own, .venv-3.12 for example, which takes minutes the first time.
test-pythons:
	$(PYTHON) .ci/pythons.py

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.typed

docs: .venv-docs/ready
	.venv-docs/bin/python -m sphinx -b html --fail-on-warning --keep-going -q -c docs/site -d build/doctrees . build/site
	@echo "The documentation is in build/site: open build/site/index.html"

dist: $(READY)
	$(BIN)/python .ci/dist.py

soak: $(READY)
	$(BIN)/python -m tests.soak

torture: $(READY)
	$(BIN)/python -m tests.torture

bench: $(READY)
	$(BIN)/python -m benchmarks

bench-postgres: $(READY)
	$(BIN)/python -m benchmarks.postgres

bench-spark: $(READY)
	$(BIN)/python -m benchmarks.spark

bench-wallet: $(READY)
	$(BIN)/python -m benchmarks.wallet

bench-server: $(READY)
	$(BIN)/python -m benchmarks.server
bench-consumers: $(READY)
	$(BIN)/python -m benchmarks.consumers

clean:
	rm -rf build dist proofs/_build .bench-* spark-warehouse src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path './.venv*' -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# These targets run Python from .venv. `private` keeps PYTHON as it is for the target that creates .venv.
-include proofs/proofs.mk
-include models/models.mk
proofs vectors models models-small: private override PYTHON := $(BIN)/python
proofs vectors models models-small: $(READY)
