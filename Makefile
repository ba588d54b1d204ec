# noalias: `make demo` shows it at work, `make test` checks everything. See `make help`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=

# In development a compiler's warning fails the build of the core.
export NOALIAS_WERROR ?= 1

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ---- environment ----------------------------------------------------------------------------------

.PHONY: tools
tools:
	@command -v $(PYTHON) >/dev/null \
	  || { echo "make: no $(PYTHON) on PATH; install Python 3.10 or newer (apt install python3 python3-venv python3-dev)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "make: $(PYTHON) is older than Python 3.10; name a newer one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "make: $(PYTHON) cannot make a virtual environment (apt install python3-venv)" >&2; exit 1; }
	@for cxx in "$$CXX" g++ c++ clang++; do test -n "$$cxx" && command -v $${cxx%% *} >/dev/null && exit 0; done; \
	  echo "make: no C++ compiler on PATH; the core is compiled here (apt install g++, or xcode-select --install)" >&2; exit 1

$(VENV)/.stamp-venv: | tools
	$(PYTHON) -m venv $(VENV)
	@touch $@

# One stamp for each set of extras: `make` installs again when the metadata or the pins change.
$(VENV)/.stamp-%: $(VENV)/.stamp-venv pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[$*]'
	@touch $@

# ---- what it does ---------------------------------------------------------------------------------

.PHONY: demo
demo: tools $(VENV)/.stamp-bench ## install, build the core, audit a demo, run the benchmark
	$(BIN)/noalias build
	$(BIN)/noalias audit --demo
	$(BIN)/noalias bench --preset quick

.PHONY: build
build: tools $(VENV)/.stamp-test ## compile the core
	$(BIN)/noalias build

# ---- checks ---------------------------------------------------------------------------------------

.PHONY: test
test: tools $(VENV)/.stamp-test $(VENV)/.stamp-recipes lint types docs build ## lint, types and tests: what CI runs
	$(BIN)/python -m pytest $(PYTEST_ARGS)

.PHONY: test-asan
test-asan: tools $(VENV)/.stamp-test ## the core's tests under AddressSanitizer and UBSan (long)
	$(BIN)/python tools/sanitize.py address,undefined $(PYTEST_ARGS)

.PHONY: test-tsan
test-tsan: tools $(VENV)/.stamp-test ## the core's tests with threads under ThreadSanitizer
	$(BIN)/python tools/sanitize.py thread $(PYTEST_ARGS)

.PHONY: test-long
test-long: tools $(VENV)/.stamp-test build ## the tests that take minutes: 100,000 steps, 20,000 programs
	$(BIN)/python -m pytest --long -m long $(PYTEST_ARGS)

.PHONY: lint
lint: $(VENV)/.stamp-test ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: types
types: $(VENV)/.stamp-test ## mypy, strict
	$(BIN)/mypy

.PHONY: docs
docs: $(VENV)/.stamp-docs ## build the documentation, warnings as errors
	$(BIN)/mkdocs build --strict --quiet

.PHONY: test-matrix
test-matrix: tools ## the suite on every supported PyTorch, each in its own environment
	$(PYTHON) tools/test_matrix.py

.PHONY: bench-check
bench-check: tools $(VENV)/.stamp-test ## fail where a call is over 10 % slower than at the merge base
	$(BIN)/python benchmarks/check.py

.PHONY: clean
clean: ## remove the environment and what tools left behind
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
