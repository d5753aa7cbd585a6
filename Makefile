# `make demo` and `make test` do all set-up themselves: nothing but Python 3.11+, pip and make is needed.
SHELL := /bin/sh
BIN := .venv/bin
# Two test processes of one thread each: the machines that run this have few cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2
NOT_SLOW := not (stats or peers or stores or ray or training)
SLOW_JOBS := stats peers stores ray training
SLOW_SECONDS ?= 900
BENCHES := loss tails risk spaces noise_floor training_overhead

.PHONY: help demo test check test-slow bench docs clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.demo ## the main job on real data, in about a minute
	@$(BIN)/latentlink demo

test: .venv/.all ## the whole fast suite
	@$(PYTEST) -m "$(NOT_SLOW)"

check: .venv/.all ## before each commit: format, lint, types, layers, quick tests
	@$(BIN)/ruff format --check -q .
	@$(BIN)/ruff check -q .
	@$(BIN)/mypy --no-error-summary
	@$(PYTEST) -m "$(NOT_SLOW) and not medium"

test-slow: .venv/.peers ## long simulations, peers, databases, Ray, training: one job each, the first failure named
	@for job in $(SLOW_JOBS); do \
	  echo "test-slow: $$job (at most $(SLOW_SECONDS) s)"; \
	  OMP_NUM_THREADS=1 timeout $(SLOW_SECONDS) $(BIN)/python -m pytest -q -m $$job --timeout $(SLOW_SECONDS) tests; \
	  code=$$?; \
	  if [ $$code -ne 0 ]; then echo "test-slow: the job '$$job' failed first (exit $$code)" >&2; exit 1; fi; \
	done

bench: .venv/.peers ## every benchmark that needs no data folder, beside its peers; hours on two cores
	@for name in $(BENCHES); do OMP_NUM_THREADS=1 $(BIN)/python benchmarks/$$name.py || exit 1; done

docs: .venv/.docs ## the documentation site, into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean: ## remove what make made
	rm -rf .venv site

.venv/.demo: pyproject.toml constraints.txt tools/install.sh
	@sh tools/install.sh .demo demo
.venv/.all: pyproject.toml constraints.txt tools/install.sh
	@sh tools/install.sh .all all,dev
.venv/.peers: pyproject.toml constraints.txt tools/install.sh
	@sh tools/install.sh .peers all,dev,peers
.venv/.docs: pyproject.toml constraints.txt tools/install.sh
	@sh tools/install.sh .docs all,docs
