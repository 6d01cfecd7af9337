# `make` lists the targets. Everything that is needed is installed into .venv and the user's cache directory.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3.11
VENV := .venv
RUN := $(VENV)/bin/
COMPILE := $(RUN)uv pip compile -q pyproject.toml -c requirements/constraints.in --generate-hashes --no-emit-index-url --no-header --python-version 3.11

.PHONY: help demo test test-faults check lint types unit control-plane cluster cluster-up cluster-down bench lock clean

help:  ## List the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/installed: requirements/dev.txt requirements/uv.txt pyproject.toml
	@echo "== installing the locked Python packages into $(VENV) (TensorFlow is large: a minute or two the first time)"
	@test -x $(RUN)python || $(PYTHON) -m venv $(VENV)
	@$(RUN)python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@$(RUN)uv pip install -q --python $(RUN)python --require-hashes requirements/dev.txt
	@$(RUN)uv pip install -q --python $(RUN)python --no-deps --no-build-isolation -e .
	@touch $@

lock:  ## Pin the Python dependencies again, with hashes.
	@for extra in operator trainer trainer-cpu dev; do $(COMPILE) --extra $$extra -o requirements/$$extra.txt; done
	@echo uv | $(RUN)uv pip compile -q - -c requirements/constraints.in --generate-hashes --no-emit-index-url --no-header -o requirements/uv.txt
