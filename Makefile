# The commands to remember. Everything that needs packages goes through `setup`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The tests start hundreds of short processes, each of which would compile every module again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-long kafka-versions checks collect lint types format docs docs-site benchmarks lock clean

help: ## Lists the commands.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## Prepares .venv: packages at their locked versions, and what makes Spark start fast.

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "laststand needs Python 3.11 or newer; say PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/laststand doctor --warm
	@touch $(STAMP)

demo: setup ## The tour: the bug, its cure, a small comparison. Prints the report's path last.
	@$(BIN)/laststand demo

test: checks ## Everything that must pass; prints the time per group of tests.
	$(BIN)/python -m pytest -n 3 --dist loadgroup -m "not long"

KAFKA_VERSIONS = 3.6.2 3.9.1 4.0.2 4.1.2 4.4.0

# Which versions the long tests run; those that cannot be fetched make tests skip, with the reason.
kafka-versions: setup
	@for version in $(KAFKA_VERSIONS); do \
	  $(BIN)/laststand system fetch apache-kafka $$version --quiet || echo "Apache Kafka $$version could not be fetched"; \
	done

test-all: test test-long ## Both; takes about an hour and a half.

test-long: kafka-versions ## What `test` leaves out: the long tests, and the long forms of the kill test and the fuzzers.
	$(BIN)/python -m pytest -n 3 --dist loadgroup -m long
	LASTSTAND_KILLS=50 $(BIN)/python -m pytest tests/containers/test_harness_killed.py
	LASTSTAND_KILLS=200 $(BIN)/python -m pytest tests/cli/test_kill_anytime.py
	$(BIN)/python -m tests.fuzz frames --count 1000000
	$(BIN)/python -m tests.fuzz segments --count 100000
	$(BIN)/python -m tests.fuzz tcp --count 100000

checks: setup
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target types collect lint

# Compiles the tests once; otherwise every worker of pytest compiles all of them.
collect: setup
	@$(BIN)/python -m pytest --collect-only -qq >$(VENV)/collected.txt 2>&1 || { cat $(VENV)/collected.txt; exit 1; }

lint: setup ## Style and import contracts.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup ## mypy, strict.
	$(BIN)/mypy

format: setup ## Formats the code.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup ## Generated documents.
	$(BIN)/python -m harness.documents

docs-site: setup ## The documentation as a site, in build/docs; needs the extra `docs`.
	$(BIN)/python -m mkdocs build --quiet --strict

benchmarks: setup ## What is measured; prints a table.
	$(BIN)/python -m benchmarks

lock: setup ## Writes requirements.lock from what is installed.
	{ echo "# Exact versions of everything that laststand and its tests install; made by \`make lock\`."; \
	  $(BIN)/python -m pip freeze --exclude-editable | grep -v '@' | sort -f; } > requirements.lock

clean: ## Removes the environment and caches, never results.
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist *.egg-info
