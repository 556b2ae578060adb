# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# What is compiled while tests and demo run is kept inside the checkout, so that a second run starts warm.
export TANGENS_CACHE_DIR := $(CURDIR)/.cache/tangens

.PHONY: help venv demo test test-all check format bench wheel lock clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 10

venv: $(READY)  ## make .venv with the pinned lock file and the package, compile its kernels
	$(BIN)/python -m tangens.kernels.build

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

demo: venv  ## simulate and differentiate a bundled scene, write out/demo/
	$(BIN)/tangens demo --out out/demo

test: check  ## lint, types and all tests but the slow ones
	$(BIN)/python -m pytest -n 2 --dist loadgroup

test-all: check  ## the same with the slow tests (marker slow)
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m ""

check: venv  ## ruff (lint and format) and mypy
	$(BIN)/ruff check src tests hatch_build.py
	$(BIN)/ruff format --check src tests hatch_build.py
	$(BIN)/mypy

format: venv  ## let ruff rewrite what it can
	$(BIN)/ruff format src tests
	$(BIN)/ruff check --fix src tests

wheel: venv  ## build dist/*.whl for this Python, with compiled kernels inside
	rm -rf src/tangens/_kernels dist
	$(BIN)/python -m tangens.kernels.build
	$(BIN)/hatchling build -t wheel

bench: venv  ## speed ratios against MuJoCo and Pinocchio
	$(BIN)/tangens bench dynamics

lock: venv  ## resolve the newest versions again
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --upgrade --universal --python-version 3.11 --extra dev pyproject.toml \
		--no-header --no-annotate --no-emit-index-url -o requirements.lock

clean:  ## remove what the other targets made
	rm -rf $(VENV) out dist src/tangens/_kernels .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
