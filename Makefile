# `make demo` and `make test` set up what they need in .venv and then do the work; `make quick` runs a part of the tests, between edits;
# `make lint` runs linters, types and import contract; `make compat` runs the tests that depend on torch with other releases of it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OUT ?= out

# Tests start hundreds of processes, each of which would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test quick slow foreign integrations compat lint check setup clean

setup: $(READY)

# A torch that is already there is kept; else the release below, which on PyPI's index may be large for GPUs.
$(READY): pyproject.toml setup.py $(wildcard cubridge/backend/ptx/native/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/python -m pip install -q torch==2.13.0
	$(BIN)/python -m pip install -q -e ".[cuda,anthropic,openai,test,check]"
	touch $(READY)

demo: $(READY)
	$(BIN)/cuirc adapt examples/prefix_lm.py --kernel sm80 -o $(OUT)/prefix_lm_sm80
	$(BIN)/cuirc adapt examples/prefix_lm.py --kernel sm90a -o $(OUT)/prefix_lm_sm90a

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal

# What most edits break first: the house, case files, language, passes, rules, engines, texts both ways, one adaptation.
QUICK := tests/test_house.py tests/test_cases.py tests/ir tests/passes tests/verify tests/engine tests/llm tests/backend/text \
	tests/kernels/test_texts.py tests/frontend/reference/test_algebra.py tests/driver/test_head_dim.py \
	$(filter-out %/test_changes.py %/test_refusals.py,$(wildcard tests/frontend/cuda/test_*.py))

quick: $(READY)
	$(BIN)/python -m pytest $(QUICK) -n 2 --dist worksteal

# Other releases of torch, each in an environment of its own: what reads references and answers calls, and a part of the rest.
TORCHES ?= 2.11.0 2.12.1 2.14.1
COMPAT := tests/frontend/reference tests/backend/launch tests/driver/test_calls.py tests/driver/test_compiled.py \
	tests/driver/test_saved.py tests/engine tests/passes

compat: $(TORCHES:%=compat-%)

compat-%:
	test -x build/torch-$*/bin/python || $(PYTHON) -m venv build/torch-$*
	build/torch-$*/bin/python -m pip install -q torch==$*
	build/torch-$*/bin/python -m pip install -q -e ".[test]"
	build/torch-$*/bin/python -m pytest $(COMPAT) -n 2 --dist worksteal

# Playwright drives Debian's chromium, where that is; a suite runs on a cluster of Ray on this machine.
slow: $(READY)
	$(BIN)/python -c "import playwright, ray" 2>/dev/null || $(BIN)/python -m pip install -q playwright ray
	$(BIN)/python -m pytest -m slow -n 2 --dist worksteal

# FlashAttention-2 on the emulator, unmodified; fetched into .foreign. FLASH_ATTENTION_3 may name a checkout of flash-attention.
foreign: $(READY)
	$(BIN)/python -m tests.foreign.get
	$(BIN)/python -m pytest tests/foreign -m slow

# Small models of transformers, on the emulator.
integrations: $(READY)
	$(BIN)/python -m pip install -q -e ".[transformers]"
	$(BIN)/python -m pytest tests/integrations tests/docs/test_pytorch_page.py -m "slow or not slow"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

check: lint test slow

clean:
	rm -rf $(OUT) build *.egg-info
