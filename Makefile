# Every target makes the virtual environment and installs what is missing, then does its work.
# `make PYTHON=python3.12 test` picks an interpreter, `make VENV=/some/where test` a place.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test style bench install clean

install: $(INSTALLED)

# torch first: with it in place, the ranges of setup.cfg add no other build of it.
$(INSTALLED): setup.cfg pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

demo: $(INSTALLED)
	$(BIN)/tempo-trl demo

test: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest

style: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.credit

clean:
	rm -rf $(VENV) build dist *.egg-info
