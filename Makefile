# Every target sets up what it needs; `make` alone explains them all.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.set-up
MODEL := smollm2-135m
ARGS ?=
export PYTHON

.PHONY: help setup demo test test-gpu check e2e bench bench-scheduler bench-kv bench-peers wheelhouse render render-kernels
.PHONY: lock clean

help: ## Explain every target (this text)
	@awk 'BEGIN { FS = ":.*## " } /^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=/path/to/python3.11 chooses the interpreter; ARGS='-k pages' goes on to pytest or the benchmark."

setup: $(READY) ## Make .venv with the pinned packages (needs a package index once; a second run is instant)

$(READY): pyproject.toml constraints.txt scripts/setup.sh scripts/package_index.sh
	@scripts/setup.sh
	@touch $@

demo: $(READY) ## Fetch a small model, start it from a manifest, watch it answer
	@$(BIN)/python scripts/demo.py $(ARGS)

test: $(READY) ## Run every test that needs no cluster and no accelerator
	@$(BIN)/tidemark models fetch $(MODEL)
	@# Where Python may not keep its bytecode, each of the many processes compiles torch's sources again: 5 s.
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --numprocesses=auto --no-loadscope-reorder $(ARGS)

test-gpu: $(READY) ## On a machine with a card: check every device op, then measure; ten minutes, a table and JSON
	@$(BIN)/python benchmarks/gpu.py $(ARGS)

e2e: $(READY) ## Run the tests on a real Kubernetes: a bed of our own (root and Go), or the cluster that KUBECONFIG names
	@$(BIN)/tidemark models fetch $(MODEL)
	@[[ -n "$${KUBECONFIG:-}" ]] || $(BIN)/python tests/cluster/bed build
	@$(BIN)/python -m pytest tests/cluster --timeout=600 -m "not long" $(ARGS)

check: $(READY) ## Lint, format, types, import order, rendered docs: all without running the product
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@MYPYPATH=scripts $(BIN)/mypy scripts/*.py
	@MYPYPATH=tests/cluster $(BIN)/mypy -p bed
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/render.py --check

bench: $(READY) ## Measure this machine and write a table to benchmarks/results/
	@$(BIN)/tidemark models fetch $(MODEL)
	@mkdir -p benchmarks/results
	@$(BIN)/python benchmarks/scheduling.py | tee benchmarks/results/scheduling.md
	@$(BIN)/python benchmarks/cpu.py --write $(ARGS)

bench-scheduler: $(READY) ## Show what the scheduler promises, on a virtual clock, and write the table
	@$(BIN)/python benchmarks/scheduler_claims.py $(ARGS)
	@$(BIN)/python benchmarks/scheduler_claims.py livelock soak $(ARGS)

bench-kv: $(READY) ## Show what quantized KV memory brings and costs on the real engine, and write the table
	@$(BIN)/tidemark models fetch $(MODEL)
	@$(BIN)/python benchmarks/kv_memory.py $(ARGS)

bench-peers: $(READY) ## Install other engines apart, so that `make bench` can measure them too
	@scripts/bench_peers.sh

wheelhouse: $(READY) ## Collect what the two images are built from in dist/wheels (about 3 GB, most of it PyTorch)
	@scripts/build_wheelhouse.sh operator
	@scripts/build_wheelhouse.sh runtime
	@scripts/build_wheelhouse.sh model $(MODEL)

render: $(READY) ## Write the reference pages again from the code they describe
	@$(BIN)/python scripts/render.py

render-kernels: $(READY) ## Compile forms of device kernels that changed, without a device, and write the table of their code
	@$(BIN)/python scripts/kernel_code.py $(ARGS)

lock: $(READY) ## Resolve pyproject.toml into constraints.txt again (after changing a dependency)
	@$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--no-annotate --all-extras --quiet pyproject.toml -o constraints.txt

clean: ## Delete .venv, the peers, caches and build output; fetched models stay
	@rm -rf $(VENV) .bench build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
