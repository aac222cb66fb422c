# make setup | demo | test | test-slow | test-all | check | docs | bench | web: each sets itself up in .venv; a second call is quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo test test-slow test-all check docs bench web web-check
setup: $(READY)

# torch first and pinned: any other package that asks for torch would bring in a build of several gigabytes.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)
	@echo 'ready: source $(VENV)/bin/activate, then headscope --help'

demo: setup
	$(BIN)/headscope demo --out demo

# Two processes of one thread each: twice as fast as one process of two threads. PYTEST_ARGS: more options for pytest.
# Bytecode is written even if the environment forbids it: otherwise each process compiles all tests anew.
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal $(PYTEST_ARGS)

test: setup
	$(PYTEST) -m "not slow and not full"

# What is too slow for every change; continuous integration runs it after `make test`.
test-slow: setup
	$(PYTEST) -m "slow and not full"

# Everything, with all combinations of which the other two run a fixed sample.
test-all: setup
	$(PYTEST)

# Pages of the explorer and of look, and the script of study pages: types checked, then bundled into the package. Only changing web/ needs node.
web:
	cd web && npm ci --silent && npm run --silent types && npm run --silent build

# The built files must be those of their sources.
web-check:
	cd web && npm ci --silent && npm run --silent types && npm run --silent build -- --check

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_packages.py tests/test_docs.py
	if command -v npm >/dev/null; then $(MAKE) --no-print-directory web-check; else echo "no node: the built pages are not checked"; fi

bench: setup
	$(BIN)/python benchmarks/stream.py

# The documentation site in site/index.html, from docs/ and mkdocs.yml. A broken link or anchor is an error.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo 'site/index.html'
