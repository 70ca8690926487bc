# `make demo` shows the driver at work on a real cluster with simulated GPUs; `make test` runs everything.
SHELL := bash
PYTHON := .venv/bin/python
NAME ?= demo
CLUSTER ?= processes

.PHONY: help demo demo-down test check unit e2e e2e-processes e2e-kind e2e-others bench golden lock proto clean
help:
	@echo "make demo       a real Kubernetes cluster with simulated GPUs, pods that choose GPUs, and what each got"
	@echo "                CLUSTER=kind: on kind, from the image and the chart that users get; so for demo-down and e2e"
	@echo "make demo-down  stops it and leaves the machine as it was"
	@echo "make test       everything: check, unit, e2e; with DRA_PRIVATE_DOCKER=1 the chart on kind also where no Docker is"
	@echo "make check      format, lint, types, import contracts"
	@echo "make unit       tests without a cluster"
	@echo "make e2e        tests on a real cluster"
	@echo "make e2e-others tests beside programs of others that take minutes to build, outside of make test: Kueue, Calico"
	@echo "make bench      times and sizes, as ratios to a floor measured in the same run"
	@echo "make golden     writes the golden files, docs/settings.md and docs/attributes.md anew"
	@echo "make lock       locks the newest allowed packages; make proto regenerates the gRPC code"

.venv/.ready: requirements-dev.lock pyproject.toml .ci/venv
	@.ci/venv

demo: .venv/.ready
	@$(PYTHON) -m e2e.demo up --name $(NAME) --cluster $(CLUSTER)

demo-down: .venv/.ready
	@$(PYTHON) -m e2e.demo down --name $(NAME) --cluster $(CLUSTER)

test: check unit e2e

check: .venv/.ready
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo

unit: .venv/.ready
	$(PYTHON) -m pytest tests -n 2 -q

# Whatever looks for traces on the machine comes last, alone. On the cluster of processes two clusters at a time: most of the
# time they wait. The order is that of e2e/tests/conftest.py.
E2E = E2E_CLUSTER=$(CLUSTER) DRA_E2E_LIVE=1 $(PYTHON) -m pytest -q

e2e: e2e-$(CLUSTER)

e2e-processes: .venv/.ready
	@$(PYTHON) -m e2e.cluster build
	env -u E2E_CLUSTER DRA_E2E_LIVE=1 $(PYTHON) -m pytest -q -n 2 --no-loadscope-reorder e2e/tests tests/deploy
	$(E2E) tests/cluster/test_traces.py $(if $(DRA_PRIVATE_DOCKER),tests/kind/test_traces.py)

e2e-kind: .venv/.ready
	$(E2E) e2e/tests tests/deploy/test_installed.py tests/deploy/test_versions.py tests/kind/test_traces.py

e2e-others: .venv/.ready
	env -u E2E_CLUSTER DRA_E2E_LIVE=1 DRA_E2E_OTHERS=1 $(PYTHON) -m pytest -q e2e/tests/test_kueue.py tests/deploy/test_network_policies.py

bench: .venv/.ready
	@$(PYTHON) -m e2e.bench

golden: .venv/.ready
	@$(PYTHON) -m tests.golden.rewrite

lock: .venv/.ready
	.venv/bin/uv pip compile pyproject.toml --universal --generate-hashes --quiet --output-file requirements.lock --upgrade
	.venv/bin/uv pip compile pyproject.toml --group dev --universal --generate-hashes --quiet --output-file requirements-dev.lock --upgrade

proto: .venv/.ready
	$(PYTHON) -m api.proto.generate

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
