# What there is to do here. `make demo` and `make test` set themselves up on a fresh clone.
#
#   make                 check and test
#   make setup           .venv with every extra
#   make demo            wallets under attack, then on Spark, in a minute
#   make test            the tests, but for the slowest on Spark
#   make test-slow       those: clusters, Spark Connect, kill -9
#   make test-all        all of them
#   make check           ruff, mypy, import-linter
#   make bench           against other stores, in one run, as ratios
#   make bench-postgres  the same for the PostgreSQL engine
#   make bench-spark     the same for the data pipeline
#   make bench-wallet    the same for a whole service
#   make proofs          the proofs, with Coq
#   make models          the models, with TLC
#   make clean           remove what all of these have made, except .venv
#
# PYTHON is the interpreter that .venv is made with: make setup PYTHON=python3.13

PYTHON ?= python3
EXTRAS := postgres,foundationdb,server,spark,lake,dev
BIN := .venv/bin
READY := .venv/ready
PYTEST := -q -n 2 --dist loadgroup --no-loadscope-reorder

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.DEFAULT_GOAL := all
.PHONY: all setup demo test test-slow test-all check bench bench-postgres bench-spark bench-wallet clean

all: check test

setup: $(READY)

# The stamp is as old as the last set-up: it runs again when what is needed has changed.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Fencepost needs Python 3.11 or newer, and $(PYTHON) is none; name one: make PYTHON=python3.13" >&2; exit 1; }
	@# Debian packs what makes environments apart from Python.
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null; } || { \
	    echo "Python cannot make environments here; install Debian's python3-venv, then make again" >&2; exit 1; }
	@echo "Setting up .venv with every extra, which takes a few minutes the first time ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --upgrade pip -c constraints.txt
	@$(BIN)/python -m pip install -qq -e ".[$(EXTRAS)]" -c constraints.txt
	@touch $@

demo: $(READY)
	@$(BIN)/python -m examples.demo

test: $(READY)
	$(BIN)/python -m pytest $(PYTEST) --ignore=tests/spark/slow

# What starts clusters of its own, or kills Spark again and again, takes minutes more.
test-slow: $(READY)
	$(BIN)/python -m pytest $(PYTEST) tests/spark/slow

test-all: test test-slow

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python -m benchmarks

bench-postgres: $(READY)
	$(BIN)/python -m benchmarks.postgres

bench-spark: $(READY)
	$(BIN)/python -m benchmarks.spark

bench-wallet: $(READY)
	$(BIN)/python -m benchmarks.wallet

clean:
	rm -rf build dist proofs/_build .bench-* src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path ./.venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# What these run in Python, they run in .venv; to make it, PYTHON must stay what it is.
-include proofs/proofs.mk
-include models/models.mk
proofs vectors models models-small: private override PYTHON := $(BIN)/python
proofs vectors models models-small: $(READY)
