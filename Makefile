# All commands for developers. Needs make, bash and Python 3.10 to 3.13. `make setup` downloads the rest.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# uv is outside of the checkout, in one folder per version, so that all checkouts share it.
UV_VERSION := 0.13.8
ATHERIS_VERSION := 3.0.0
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/distributed-input
UV := $(CACHE)/uv-$(UV_VERSION)/bin/uv
# The first Python that TensorFlow has wheels for. Override: `make PYTHON=...`.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python3.10; do $$p -c \
	'import sys; (3, 10) <= sys.version_info < (3, 14) or sys.exit(1); print(sys._base_executable)' 2>/dev/null && break; done)
SYNCED := .venv/.synced
NATIVE := sidecar/src/distributed_input/graph/_native_ops.so
# A second environment, only for the examples: see pyproject.toml.
EXAMPLES := .venv-examples
DRAWING := $(EXAMPLES)/.synced
UNIT := tests/unit tests/simulator tests/fuzz
DATA := examples/digits/data examples/photos/data

export PATH := $(CURDIR)/.venv/bin:$(PATH)
export UV_PYTHON_DOWNLOADS := never
export TF_CPP_MIN_LOG_LEVEL ?= 2
# Without bytecode, each process compiles what it imports: 4 s of CPU time for TensorFlow.
unexport PYTHONPATH VIRTUAL_ENV UV_PYTHON PYTHONDONTWRITEBYTECODE

# An old version on purpose: its stubs run on every protobuf runtime from 4.25 to 7.
PROTOC = $(UV) run --quiet --isolated --no-project --no-config --python '>=3.10,<3.13' \
	--with grpcio-tools==1.62.3 --with 'setuptools<80' python -m grpc_tools.protoc -I.
PROTOS = distributed_input/api/proto/*.proto

# `make test` first builds the tools. Then it runs two parts at a time, because parts often wait: long
# ones first, in this order.
PARTS := tools e2e integration unit compat operator faults publishing charts cluster \
	lint types contracts site protos-check crds-check
JOBS ?= 2

.PHONY: help setup run test check quick-unit tools lint native-sanitizers format types contracts site unit charts publishing signatures matrix dist base-image vulnerabilities version release operator operator-faults operator-readers cert-manager ecosystem kubernetes-versions cluster e2e e2e-releases cluster-up cluster-down integration portability arm64 frameworks compat compat-page faults mutation mutants budgets chaos simulate simulate-delivery bench drill mistakes rotation same-meaning fuzz fuzz-guided protos protos-check crds crds-check permissions clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(SYNCED) $(DRAWING) $(NATIVE) ## Build the native ops; create .venv and .venv-examples: both packages (editable) and the tools, at locked versions

run: $(SYNCED) examples/digits/data ## Train the digits example, with its input pipeline in local processes
	distributed-input run examples/digits/input.yaml -- python examples/digits/train.py

test: $(SYNCED) $(DRAWING) $(DATA) ## Run all checks and tests; print the time of each part at the end
	@logs=$$(mktemp -d); trap 'rm -rf "$$logs"' EXIT; began=$$SECONDS; \
	for part in $(PARTS); do echo "$$part FAILED: it did not end" >"$$logs/$$part.time"; done; \
	$(MAKE) --no-print-directory part-tools LOGS="$$logs" || true; \
	$(MAKE) --no-print-directory --jobs=$(JOBS) $(patsubst %,part-%,$(filter-out tools,$(PARTS))) \
	  LOGS="$$logs" || true; \
	printf '\n'; for part in $(PARTS); do cat "$$logs/$$part.time"; done; \
	printf '%-14s %6d s\n' all $$((SECONDS - began)); \
	! grep -q FAILED "$$logs"/*.time

# Print the output of a part after it ends, so that the output of the parts does not mix.
part-%:
	@echo "==> $*"; result=ok; TIMEFORMAT='%0R %0U %0S'; \
	used=$$({ time $(MAKE) --no-print-directory $* >"$(LOGS)/$*.log" 2>&1; } 2>&1) || result=FAILED; \
	printf '%-14s %6d s, CPU %5d + %4d s  %s\n' "$*" $$used $$result >"$(LOGS)/$*.time"; \
	{ echo "==> $*: $$result"; cat "$(LOGS)/$*.log"; }

part-cluster: part-e2e  # the same node

check: $(SYNCED) ## Run the everyday checks in some minutes: lint, types, contracts, most unit tests, a short run
	$(MAKE) --no-print-directory --jobs=2 lint types contracts quick-unit
	$(MAKE) --no-print-directory run

quick-unit: $(SYNCED) ## Run the unit tests that take less than seconds each, in two processes
	pytest --quiet --numprocesses 2 --dist loadfile -m 'not slow' tests/unit

lint: $(SYNCED) ## Check rules and format with ruff, and check that uv.lock is up to date
	$(UV) lock --check --quiet
	ruff check .
	ruff format --check .

# The library of the tests is the one in the source tree. Afterwards it is built again.
NATIVE_TESTS := tests/unit/distributed_input/graph/test_native_ops.py
native-sanitizers: $(SYNCED) ## Run the tests of the native ops with AddressSanitizer, UBSan and ThreadSanitizer
	trap 'touch -d @0 $(NATIVE)' EXIT; \
	CXXFLAGS='-g -fsanitize=address,undefined -fno-sanitize-recover=undefined' '$(PYTHON)' sidecar/native/backend.py && \
	ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so)" \
	  pytest $(NATIVE_TESTS) && \
	CXXFLAGS='-g -fsanitize=thread' '$(PYTHON)' sidecar/native/backend.py && \
	TSAN_OPTIONS='ignore_noninstrumented_modules=1 exitcode=66' LD_PRELOAD="$$(g++ -print-file-name=libtsan.so)" \
	  pytest $(NATIVE_TESTS)
	$(MAKE) --no-print-directory $(NATIVE)

format: $(SYNCED) ## Fix and format the code with ruff
	ruff check --fix-only .
	ruff format .

types: $(SYNCED) ## Check types with mypy (strict)
	mypy

contracts: $(SYNCED) ## Check the import contracts with import-linter
	lint-imports

site: $(SYNCED) ## Build the documentation site into build/site; a broken link is an error
	python -m testing.site

unit: $(SYNCED) ## Run unit tests, the simulator's tests, and a few inputs of the fuzzer: make unit UNIT=FOLDERS
	pytest $(UNIT)

integration: $(SYNCED) $(DRAWING) $(DATA) ## Run tests with real processes on this machine
	python -m testing.cluster storage
	python -m testing.browser
	pytest tests/integration
	pytest tests/same_meaning

portability: $(SYNCED) examples/digits/data ## Run tests and the digits example without the calls that macOS lacks
	python -m testing.portability

arm64: $(SYNCED) ## Test the native ops on arm64, under emulation (root on Debian): make arm64 VERSIONS=2.21.0
	python -m testing.portability.arm64 $(VERSIONS)

frameworks: tools ## Run the tests with PyTorch, JAX, Keras and their trainers, also in pods (once: an environment of 6 GB)
	$(NODE)
	pytest tests/frameworks

compat: $(SYNCED) $(DATA) ## Run the compatibility tests, and check that docs/compatibility.md is up to date
	python -m testing.compat

compat-page: $(SYNCED) $(DATA) ## Run the compatibility tests, and write docs/compatibility.md
	python -m testing.compat --write

tools: $(SYNCED) ## Build the programs that tests run: Kubernetes and others (once; pytest would limit the time)
	python -m testing.cluster tools

# If this machine cannot run a cluster, the tests report it.
NODE = python -m testing.cluster up || true

charts: tools ## Test the chart: helm lint, and its templates with a real API server
	pytest tests/charts

publishing: tools ## Test the release artefacts: install them, and publish them to servers on this machine
	pytest tests/publishing -m 'not matrix and not signatures'

signatures: tools ## Sign images and the chart with a key of this machine, and verify them (builds cosign once)
	python -m testing.cluster signing
	pytest tests/publishing -m signatures

matrix: $(SYNCED) ## Install the wheels and train with other Pythons and with TensorFlow 2.16 (downloads 1 GB)
	pytest tests/publishing -m matrix

dist: $(SYNCED) ## Build wheels and sdists of this checkout into dist/
	$(UV) build --quiet --all-packages --out-dir dist

base-image: tools ## Pin the base image in the Dockerfile to the digest of its tag (needs its registry)
	python -m testing.publishing.base_image

vulnerabilities: $(SYNCED) ## Search the lock file for known vulnerabilities: make vulnerabilities [DATABASE=URL] (needs OSV)
	python -m testing.publishing.vulnerabilities --database '$(DATABASE)'

version: $(SYNCED) ## Write the version of the next release to all files: make version VERSION=1.2.3
	python -m testing.publishing version '$(VERSION)'

# Without PUBLISH=1, print the commands that publish, and what is missing.
RELEASE = --registry '$(REGISTRY)' --index-url '$(INDEX_URL)' --download-url '$(DOWNLOAD_URL)' $(if $(PUBLISH),--publish)
release: $(SYNCED) ## Build and test the artefacts: make release VERSION=1.2.3 [PUBLISH=1 REGISTRY=... INDEX_URL=... DOWNLOAD_URL=...]
	python -m testing.publishing build '$(VERSION)' $(RELEASE)
	RELEASE_ARTIFACTS=dist pytest tests/publishing/test_distributions.py tests/publishing/test_install.py -m 'not matrix'
	python -m testing.publishing publish '$(VERSION)' $(RELEASE)

operator-faults: tools ## Kill the operator after every write, inject faults, change every field (20 min)
	OPERATOR_FAULTS=all pytest tests/operator/faults -s

cert-manager: tools ## Test with certificates from cert-manager's own controllers, which it builds once
	python -m testing.cluster issuer
	pytest tests/cert_manager

operator-readers: tools ## Measure the operator with inputs that trainers read: make operator-readers N=2000 IDLE=10000
	python -m testing.operator.readers.measure --readers $(or $(N),2000) --idle $(or $(IDLE),10000)

ecosystem: tools ## Test with the controllers of Kueue, JobSet, KEDA and trainers (builds them once, 30 min)
	python -m testing.cluster ecosystem
	pytest tests/ecosystem

kubernetes-versions: tools ## Test with the lowest and the newest Kubernetes (builds each once): make kubernetes-versions VERSIONS="1.29 1.37"
	python -m testing.kubernetes_versions $(VERSIONS)

operator: tools ## Test the operator with a real API server
	pytest tests/operator

cluster: tools $(DRAWING) ## Test the test cluster and the images on it
	$(NODE)
	pytest tests/cluster

e2e: tools $(DRAWING) ## Test on a real node: install, train, kill parts, upgrade (root, or E2E_KUBECONFIG)
	$(NODE)
	pytest tests/e2e -m 'not releases'

e2e-releases: tools $(DRAWING) ## Upgrade from the previous commit and roll back on a real node (root)
	$(NODE)
	pytest tests/e2e -m releases

cluster-up: $(SYNCED) $(DRAWING) ## Start Kubernetes with one node on this machine, with this checkout's images (root)
	python -m testing.cluster up

cluster-down: $(SYNCED) ## Stop this cluster, also after a crash
	python -m testing.cluster down

faults: $(SYNCED) ## Run schedules of faults, with real processes and in virtual time; test that each guard is needed
	pytest tests/chaos tests/delivery

mutation: $(SYNCED) ## Remove single guards from a copy of the sources, and check that a test fails (20 min)
	python -m testing.mutation

mutants: $(SYNCED) ## Change the delivery code in small ways, and check that tests report it: make mutants N=20 SEED=0
	python -m testing.mutation.sources --sample $(or $(N),20) --seed $(or $(SEED),0)

budgets: $(SYNCED) ## Check that budgets hold in all orders of actions: make budgets WORKERS=3
	BUDGET_WORKERS=$(or $(WORKERS),3) \
	  pytest tests/unit/distributed_input_operator/test_budget.py --durations 3 -s --timeout 7200

chaos: $(SYNCED) ## Run more schedules of faults: make chaos N=100 SEED=0
	python -m testing.chaos --n $(or $(N),100) --seed $(or $(SEED),0)

simulate-delivery: $(SYNCED) ## Simulate the delivery in virtual time: make simulate-delivery N=20000 SEED=0
	python -m testing.delivery --n $(or $(N),20000) --seed $(or $(SEED),0)

simulate: $(DRAWING) ## Simulate scaling; write the table and pictures of docs/scaling.md
	$(EXAMPLES)/bin/python -m testing.simulator

bench: $(SYNCED) $(DATA) ## Measure what a cluster runs, on two hosts as network namespaces (root, 2.5 h)
	python -m testing.bench
	python -m testing.bench.loaders

drill: $(SYNCED) ## Induce the causes of a stall, and check that `explain` names each; needs idle CPUs
	python -m testing.drill

mistakes: $(SYNCED) ## Make mistakes of new users, and write what is printed to docs/mistakes.md
	python -m testing.mistakes

rotation: $(SYNCED) ## Read for ten minutes while all certificates are renewed every 30 s
	python -m testing.integration.rotation --seconds 600 --every 30

same-meaning: $(SYNCED) ## Run random pipelines and compare them with TensorFlow: make same-meaning N=10000 SEED=0
	python -m testing.same_meaning --n $(or $(N),1000) --seed $(or $(SEED),0)

fuzz: $(SYNCED) ## Run changed inputs through each parser of the network and of files: make fuzz N=1000000 SEED=0
	python -m testing.fuzz --n $(or $(N),100000) --seed $(or $(SEED),0)

fuzz-guided: $(SYNCED) ## The same with feedback from the code, with atheris, which it downloads: make fuzz-guided N=1000000
	$(UV) run --quiet --no-sync --with atheris==$(ATHERIS_VERSION) \
	  python -m testing.fuzz.guided --n $(or $(N),100000) --seed $(or $(SEED),0)

protos: $(UV) ## Generate the stubs from the .proto files
	cd sidecar/src && $(PROTOC) --python_out=. --pyi_out=. $(PROTOS)

protos-check: $(UV) ## Check that the stubs match the .proto files
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && cd sidecar/src && \
	$(PROTOC) --python_out="$$fresh" --pyi_out="$$fresh" $(PROTOS) && \
	diff -r -x '*.proto' -x '__*__*' -x py.typed "$$fresh/distributed_input/api/proto" distributed_input/api/proto || \
	{ echo 'The stubs differ from the .proto files: run `make protos` and commit what it writes.'; exit 1; }

crds: $(SYNCED) ## Generate the custom resource definitions from the models
	python -m distributed_input.api.resource.crd crds

crds-check: $(SYNCED) ## Check that the custom resource definitions match the models
	@folder=$$(mktemp -d) && python -m distributed_input.api.resource.crd $$folder && \
	diff -r crds $$folder || \
	{ echo 'The definition differs from the model: run `make crds` and commit what it writes.'; exit 1; }

permissions: tools ## Write the table of permissions in docs/security.md from the chart
	python -m testing.charts.permissions

clean: ## Remove everything that the targets created in the checkout
	rm -rf .venv .venv-examples .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(SYNCED): $(UV) pyproject.toml operator/pyproject.toml sidecar/pyproject.toml uv.lock
	$(UV) sync --quiet --frozen --compile-bytecode --all-packages --python '$(PYTHON)'
	@touch $@

# Without a compiler, rows are encoded in Python.
$(NATIVE): $(wildcard sidecar/native/*)
	@'$(PYTHON)' sidecar/native/backend.py || true

$(DRAWING): $(SYNCED)
	UV_PROJECT_ENVIRONMENT=$(EXAMPLES) $(UV) sync --quiet --frozen --compile-bytecode --all-packages --no-default-groups --group examples --python '$(PYTHON)'
	@touch $@

examples/%/data: | $(DRAWING)
	$(EXAMPLES)/bin/python examples/$*/$*.py $@

$(UV):
	@[ -n '$(PYTHON)' ] || { echo 'No Python 3.10 to 3.13 found: install one, or name it: make PYTHON=/path/to/python3.11'; exit 2; }
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && '$(PYTHON)' -m venv "$$dir/uv" && \
	"$$dir/uv/bin/pip" install --quiet --disable-pip-version-check uv==$(UV_VERSION) && \
	mkdir -p '$(@D)' && cp "$$dir/uv/bin/uv" '$@.new' && mv '$@.new' '$@'
