# Every target sets up what it needs: on a fresh machine `make demo` or `make test` alone is enough.
.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done

.PHONY: help docs setup demo test test-local test-spark test-cluster check layers format bench stale lock clean

help:  ## say what the targets do
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 22

setup: $(STAMP)  ## create .venv with everything, find or install Java 17+
	@scripts/java --find >/dev/null || scripts/java

$(STAMP): pyproject.toml bench/pyproject.toml requirements.lock scripts/setup scripts/java
	@scripts/setup $(VENV)
	@touch $@

demo: $(STAMP)  ## a live pipeline in the terminal, about a minute
	@. scripts/env && $(BIN)/windrow demo $(ARGS)

test: $(STAMP)  ## all tests: two processes, and the Spark tests in one beside them
	@scripts/test $(BIN) all $(ARGS)

test-local: $(STAMP)  ## the tests that need no Spark
	@scripts/test $(BIN) local $(ARGS)

test-spark: $(STAMP)  ## the tests that need Spark
	@scripts/test $(BIN) spark $(ARGS)

test-cluster: $(STAMP)  ## the Spark tests on a master and two executors in processes of their own
	@WINDROW_MASTER='local-cluster[2,1,1024]' scripts/test $(BIN) spark $(ARGS)

check: $(STAMP)  ## lint, format, types, layers, and whether pages of results say what state they are in
	$(BIN)/ruff check src bench tests
	$(BIN)/ruff format --check src bench tests
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/windrow bench report --check

format: $(STAMP)  ## rewrite the tree as `make check` wants it
	$(BIN)/ruff check --fix src bench tests
	$(BIN)/ruff format src bench tests

docs: $(STAMP)  ## the documentation as a site with search, in site/
	@scripts/docs $(BIN)

bench: $(STAMP)  ## run experiments: make bench [NAME=patterns] [ARGS="--quick"]
	@. scripts/env && $(BIN)/windrow bench $(or $(NAME),patterns) $(ARGS)

stale: $(STAMP)  ## say which pages of docs/results other code lies under, and mark them
	@$(BIN)/windrow bench report --mark

lock: ## write requirements.lock anew from the newest versions the ranges allow
	@scripts/lock

clean:  ## remove what tests and builds leave; keeps .venv
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
