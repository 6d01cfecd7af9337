# `make` lists the targets. Targets install what they need into .venv and the user's cache directory.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3.11
# The interpreters of `make pythons`: versions, which uv finds on the PATH or downloads, or paths.
PYTHONS ?= 3.12 3.13
# The versions of TensorFlow of `make test-versions`, or those that tests.versions chooses.
VERSIONS ?=
# The versions of Kubernetes of `make test-kubernetes`, beside the default one of all tests.
MINORS ?= 1.34 1.35 1.37
# The earlier version of `make test-upgrade`, in Git.
FROM ?= HEAD~1
VENV := .venv
RUN := $(VENV)/bin/
DURING := $(RUN)python -m testbed during
VENV_PACKAGE := $(notdir $(PYTHON))-venv
# Shows apt's output only if apt fails. apt-get update comes first: without package lists apt finds no package.
INSTALL_VENV_PACKAGE = { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo '== installing $(VENV_PACKAGE)' >&2 \
	&& export DEBIAN_FRONTEND=noninteractive && { told=$$(apt-get update -qq 2>&1 \
	&& apt-get install -qq --yes --no-install-recommends $(VENV_PACKAGE) 2>&1) || { echo "$$told" >&2; false; }; }; }
# Each tier starts hundreds of interpreters. With this variable each of them compiles the packages and tests again.
unexport PYTHONDONTWRITEBYTECODE
LOCK := $(RUN)uv pip compile -q $(if $(filter yes,$(UPGRADE)),--upgrade) --generate-hashes --no-emit-index-url --no-header

.PHONY: help docs reference images release-files push-chart chart-readme demo demo-cluster test test-faults check pythons test-versions test-kubernetes test-upgrade lint types unit programs control-plane kwok queue-programs queues queues-earlier processes cluster quickstarts campaign cluster-up cluster-down bench mutants lock outdated clean audit

help:  ## List the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/installed: requirements/dev.txt requirements/uv.txt pyproject.toml
	@echo "== installing the locked Python packages into $(VENV) (TensorFlow is large: a minute or two the first time)" >&2
	@command -v $(PYTHON) >/dev/null || { echo 'there is no $(PYTHON) here: install Python 3.11, or name one: make PYTHON=…' >&2; exit 1; }
	@# Debian has the modules of venv in a separate package.
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || $(INSTALL_VENV_PACKAGE) \
		|| { echo 'install the Debian package $(VENV_PACKAGE) first (as root: apt-get update && apt-get install $(VENV_PACKAGE))' >&2; exit 1; }
	@test -x $(RUN)python || $(PYTHON) -m venv $(VENV)
	@$(RUN)python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@# Without bytecode every start of TensorFlow compiles its modules again if PYTHONDONTWRITEBYTECODE is set.
	@$(RUN)uv pip install -q --compile-bytecode --python $(RUN)python --require-hashes -r requirements/dev.txt
	@$(RUN)uv pip install -q --python $(RUN)python --no-deps --no-build-isolation -e .
	@touch $@

lock:  ## Pin the Python dependencies again, with hashes; UPGRADE=yes: at the newest versions that constraints.in allows.
	@for extra in operator trainer trainer-cpu trainer-gpu client local plot docs dev; do \
	  $(LOCK) pyproject.toml -c requirements/constraints.in --python-version 3.11 --extra $$extra -o requirements/$$extra.txt || exit 1; done
	@echo uv | $(LOCK) - -c requirements/constraints.in -o requirements/uv.txt
	@# Of kfp, which a test compiles a recipe with: its Kubernetes client is another one than ours.
	@echo kfp | $(LOCK) - --python-version 3.11 -o requirements/kfp.txt
	@printf 'cyclonedx-bom\npip-audit\n' | $(LOCK) - -c requirements/constraints.in --python-version 3.11 -o requirements/audit.txt

outdated: $(VENV)/installed  ## What is behind: locked Python packages and Go modules, as a table (asks the index and Go's proxy).
	@$(RUN)python -m testbed.outdated

AUDITED := operator client local plot trainer
AUDIT := build/audit
audit: $(VENV)/installed  ## Known vulnerabilities of the locked packages (asks PyPI), and their bills of materials in build/sbom.
	@$(RUN)uv venv -q --clear $(AUDIT) && $(RUN)uv pip install -q --python $(AUDIT) --require-hashes -r requirements/audit.txt
	@mkdir -p build/sbom
	@for each in $(AUDITED); do $(AUDIT)/bin/cyclonedx-py requirements requirements/$$each.txt --output-file build/sbom/$$each.cdx.json || exit 1; done
	@failed=0; for each in $(AUDITED); do echo "== $$each" >&2; \
	  $(AUDIT)/bin/pip-audit --strict --disable-pip --require-hashes -r requirements/$$each.txt || failed=1; done; exit $$failed

check: $(VENV)/installed lint types unit  ## Lint, types, import contract, unit tests: a minute.

lint: $(VENV)/installed
	@$(RUN)ruff check .
	@$(RUN)ruff format --check -q . || { echo 'run: $(RUN)ruff format .'; exit 1; }
	@$(RUN)lint-imports --no-logo

types: $(VENV)/installed
	@$(RUN)mypy api/tftraining_api operator/tftraining_operator trainer/tftraining client/tftraining_client tests testbed benchmarks

# Processes of their own cost two thirds of pytest-xdist here: the tests are short, and each worker would collect all of them.
UNIT_PARTS := operator/cluster operator/plan launch client
unit: $(VENV)/installed
	@$(MAKE) --no-print-directory --jobs=5 --output-sync=target unit/others $(UNIT_PARTS:%=unit/%)

unit/others: UNIT_TESTS = tests/unit $(UNIT_PARTS:%=--ignore=tests/unit/%)
unit/%: UNIT_TESTS = tests/$@
unit/%:
	@$(RUN)pytest -q $(UNIT_TESTS) -m 'not slow_fault' -p no:xdist -o cache_dir=.pytest_cache/$@

pythons: $(VENV)/installed  ## Unit tests and a training on the other supported Python versions (PYTHONS=3.12 …).
	@for python in $(PYTHONS); do \
	  echo "== Python $$python" && folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	  $(RUN)uv venv -q --python "$$python" "$$folder/venv" && export VIRTUAL_ENV="$$folder/venv" && \
	  $(RUN)uv pip install -q --require-hashes -r requirements/dev.txt && \
	  $(RUN)uv pip install -q --no-deps --no-build-isolation -e . && \
	  "$$folder/venv/bin/pytest" tests/unit --numprocesses=2 && \
	  "$$folder/venv/bin/tftj" run examples/multi-worker-digits.yaml --kill worker-1@epoch=3 \
	    --workdir "$$folder" --env TF_CPP_MIN_LOG_LEVEL=3 && rm -rf "$$folder" || exit 1; \
	done

test-versions: $(VENV)/installed  ## Trainings with a kill under TensorFlow 2.15 to 2.21 and Keras 3.8 to the newest: half an hour.
	@$(RUN)python -m tests.versions $(VERSIONS)

test-kubernetes: $(VENV)/installed  ## The tiers with an API server on other versions of Kubernetes (MINORS="1.34 1.35 1.37").
	@for minor in $(MINORS); do echo "== Kubernetes $$minor" && export TFTRAINING_KUBERNETES=$$minor \
	  && $(MAKE) --no-print-directory control-plane kwok cluster || exit 1; done

test-upgrade: programs  ## Upgrade the operator from an earlier version and roll back, with running jobs (FROM=HEAD~1).
	@$(RUN)python -m tests.upgrade --from $(FROM)

programs: $(VENV)/installed
	@# Built here to show the progress: the first build takes some ten minutes. If the build fails, the tests say so.
	-@$(RUN)python -m testbed binaries etcd kube-apiserver kubectl helm kube-controller-manager kube-scheduler kwok kstatus >/dev/null

control-plane: programs  ## The operator on a real API server and etcd, without nodes.
	@$(RUN)pytest tests/control_plane -m 'not slow_fault' --numprocesses=3 --dist=worksteal

kwok: programs  ## The same with the real controllers and scheduler, and kwok in place of kubelets.
	@$(RUN)pytest tests/kwok -m 'not slow_fault' --numprocesses=2 --dist=worksteal

# Kueue 0.17.0 runs on the default Kubernetes. Kueue 0.14.8 and scheduler-plugins 0.34.7 are of Kubernetes 1.34, on which the
# test with both a queue and a PodGroup runs with either Kueue.
QUEUE_TESTS := tests/kwok/test_kueue.py tests/kwok/test_topology.py tests/kwok/test_coscheduling.py
queue-programs: $(VENV)/installed
	-@$(RUN)python -m testbed binaries etcd kube-apiserver kubectl kube-controller-manager kube-scheduler kwok kueue >/dev/null
	-@TFTRAINING_KUBERNETES=1.34 $(RUN)python -m testbed binaries etcd kube-apiserver kubectl kube-controller-manager kube-scheduler kwok scheduler-plugins >/dev/null

IN_BOTH := tests/kwok/test_kueue.py::test_a_gang_is_queued_as_a_whole_and_then_placed_as_a_whole
queues: queue-programs  ## The same with jobs in a real Kueue, and gangs under the real coscheduling plugin.
	@$(RUN)pytest tests/kwok/test_kueue.py tests/kwok/test_topology.py --deselect $(IN_BOTH) --numprocesses=2 --dist=worksteal
	@TFTRAINING_KUBERNETES=1.34 $(RUN)pytest tests/kwok/test_coscheduling.py $(IN_BOTH) --numprocesses=2 --dist=worksteal

queues-earlier: $(VENV)/installed  ## Kueue 0.14.8 on Kubernetes 1.34, also with the coscheduling plugin.
	@TFTRAINING_KUBERNETES=1.34 TFTRAINING_KUEUE=0.14 $(RUN)pytest tests/kwok/test_kueue.py tests/kwok/test_topology.py --numprocesses=2 --dist=worksteal

processes: $(VENV)/installed  ## Real TensorFlow training in processes on this machine, one fault of each kind.
	@# The tests of the launchers wait three quarters of their time, those of TensorFlow compute: both run side by side.
	@$(RUN)pytest tests/processes tests/exact -m 'not slow_fault' --numprocesses=4 --dist=worksteal

cluster: $(VENV)/installed  ## Real training on a real cluster (kind), one fault of each kind.
	@$(DURING) $(RUN)pytest tests/cluster -m 'not slow_fault' --numprocesses=2 --dist=worksteal

quickstarts: $(VENV)/installed  ## The quick starts on kind and on a cluster, as their pages are written: ten minutes.
	@$(RUN)pytest tests/quickstarts

# Without SEED each campaign draws a new one, and prints it.
campaign: $(VENV)/installed  ## Random faults on running jobs of every kind, and a verdict (SEED=… MINUTES=…).
	@$(DURING) $(RUN)python -m tests.campaign $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(FAULTS),--kinds $(FAULTS))

test: check control-plane kwok processes cluster  ## Every tier, with one fault of each kind.

test-faults: check control-plane  ## Every tier, with all faults.
	@$(RUN)pytest tests/unit -m slow_fault --numprocesses=2
	@$(RUN)pytest tests/control_plane -m slow_fault --numprocesses=2
	@MODEL_EXAMPLES=200 $(RUN)pytest tests/unit/operator/plan/test_properties.py --numprocesses=2
	@$(RUN)pytest tests/kwok $(QUEUE_TESTS:%=--ignore=%) --numprocesses=2 --dist=worksteal
	@$(MAKE) --no-print-directory queues queues-earlier
	@$(RUN)pytest tests/processes tests/exact --numprocesses=4 --dist=worksteal
	@$(DURING) $(RUN)pytest tests/cluster
	@$(MAKE) --no-print-directory quickstarts
	@$(MAKE) --no-print-directory test-upgrade
	@$(MAKE) --no-print-directory test-kubernetes MINORS=1.37
	@$(DURING) $(RUN)python -m tests.campaign.seeds
	@$(MAKE) --no-print-directory campaign MINUTES=3

release-files: programs  ## The files of a release in dist/: wheel, sdist, chart, install.yaml, notes, SBOMs of make audit, checksums.
	@$(RUN)python -m testbed.release_files $(if $(TAG),--tag $(TAG)) $(if $(OPERATOR_IMAGE),--operator-image $(OPERATOR_IMAGE)) \
	  $(if $(SOURCE),--home $(SOURCE)) $(if $(wildcard build/sbom),--sboms build/sbom)

images: $(VENV)/installed  ## Both images for this machine, or for PLATFORMS=linux/amd64,linux/arm64 (REGISTRY=… TAG=… PUSH=yes).
	@$(RUN)python -m testbed.release_images $(if $(PLATFORMS),--platforms $(PLATFORMS)) $(if $(REGISTRY),--registry $(REGISTRY)) \
	  $(if $(TAG),--tag $(TAG)) $(if $(filter yes,$(PUSH)),--push)

push-chart: $(VENV)/installed  ## Push the chart of `make release-files` to an OCI registry, and print its digest (REGISTRY=…).
	@$(RUN)python -m testbed.chart_registry $(REGISTRY) $(if $(filter yes,$(PLAIN_HTTP)),--plain-http)

docs: $(VENV)/installed  ## The documentation site in build/site; a broken link is an error.
	@$(RUN)python -m testbed.site.sources
	@$(RUN)zensical build --clean --strict

reference: $(VENV)/installed  ## Write the reference pages of docs/ that are made from the code.
	@$(RUN)python -m testbed.site.reference
	@$(RUN)python -m tests.exact page

chart-readme: $(VENV)/installed  ## Write the table of values into the chart's README.
	@$(RUN)python -m testbed.chart_readme

cluster-up: $(VENV)/installed  ## Start the test cluster with the operator, and leave it running (OPERATOR=no: without it).
	@$(RUN)python -m testbed up $(if $(filter no,$(OPERATOR)),--no-operator)

cluster-down: $(VENV)/installed  ## Remove the test cluster and everything that it created, models included, except caches.
	@$(RUN)python -m testbed down

demo: $(VENV)/installed  ## A training of two workers on this machine, one of them killed half-way: half a minute.
	@# Its files stay for the commands that it names at its end, until the next demo, which must not resume from them.
	@rm -rf build/demo
	@$(RUN)tftj run examples/multi-worker-digits.yaml --kill worker-1@epoch=3 --workdir build/demo --env TF_CPP_MIN_LOG_LEVEL=3

demo-cluster: $(VENV)/installed  ## The same on a real cluster (kind), with the operator.
	@$(RUN)python -m testbed.demo

bench: $(VENV)/installed  ## The first figures of docs/results.md, without a cluster: about ten minutes.
	@$(RUN)python -m benchmarks.control_plane
	@$(RUN)python -m benchmarks.recovery --local
	@$(RUN)python -m benchmarks.overhead

mutants: $(VENV)/installed  ## Small changes of the pure decisions that no unit test detects: half an hour.
	@$(RUN)python -m tests.mutation operator/tftraining_operator/plan trainer/tftraining/launch \
	  --tests $(addprefix tests/unit/,api operator launch client)

clean:  ## Remove build results from the checkout (caches are in ~/.cache/tftraining).
	@rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
