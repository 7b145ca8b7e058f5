PY ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Of PyTorch and others few modules are imported: each is compiled when it is, and not all of them now.
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check install --no-compile -c constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-libraries test-all durations faults doctor-faults submit test-compose test-systemd test-browser test-ray deploy-check lint types contracts proto proto-check docs site hashes bench-align bench-paillier bench-florist bench-readers bench-unaligned bench-linkage bench-upsi bench-hidden bench-trees bench-statistics bench-split bench-serving clean drill-restore drill-rotate soak drill-upgrade capacity

help: ## this list
	@echo "make …    (PY=python3.12 chooses the Python that makes $(VENV); 3.10 or newer)"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "%-14s %s\n", $$1, $$2}'

demo: $(VENV)/demo.stamp ## two nodes on this machine train one model; the report goes to runs/demo
	@rm -rf runs/demo
	@$(BIN)/python examples/clinic_lab/make_data.py runs/demo/data
	@$(BIN)/vfl-node run examples/clinic_lab/job.yaml --data active=runs/demo/data/clinic.csv --data passive=runs/demo/data/lab.csv --out runs/demo

# Tests start many small processes: one thread each keeps them fair to each other and repeatable. A worker for each core and two
# more, since many tests wait; a file's tests stay together, with the nodes and models that they share, and files begin in the
# order of tests/conftest.py, by tests/durations.json (make test WORKERS=0: one after the other, in this process). The compiled
# modules are kept, since the tests start hundreds of processes.
test test-libraries test-all: export OMP_NUM_THREADS := 1
test test-libraries test-all: export PYTHONDONTWRITEBYTECODE :=
WORKERS ?= $(shell expr $$(unset OMP_NUM_THREADS; nproc) + 2)
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: $(VENV)/dev.stamp ## the whole suite except what takes minutes or needs Docker; WORKERS=N side by side
	$(PYTEST) -m "not slow and not compose and not browser and not ray"

# Whole alignments and Paillier's encryption. Ladders and residues of every kernel are compared in make test.
USES_KERNELS := $(addprefix tests/alignment/,test_psi.py test_psu.py test_apsi.py test_transcripts.py) \
  $(addprefix tests/crypto/,test_safe_prime.py paillier/test_encryption.py paillier/test_packing.py)

test-libraries: $(VENV)/dev.stamp ## the tests of protocols once more without compiled kernels, where make test had them
	@quickest=$$($(BIN)/python -c 'from vfl_node.crypto.kernels import find_kernel; print(find_kernel("").name)') || exit 1; \
	if [ "$$quickest" = libsodium ]; then echo "skipped: this machine runs no compiled kernel, so make test ran the libraries"; \
	else VFL_KERNEL=libsodium $(PYTEST) -m "not slow and not compose and not browser and not ray" $(USES_KERNELS); fi

test-all: $(VENV)/dev.stamp ## the slow tests as well, and all cases of those that try a part in make test
	VFL_THOROUGH=1 $(PYTEST) -m "not compose and not browser and not ray"

durations: $(VENV)/dev.stamp ## run the tests of make test and write tests/durations.json, by which files are ordered
	OMP_NUM_THREADS=1 $(PYTEST) -m "not slow and not compose and not browser and not ray" --record-durations

faults: export OMP_NUM_THREADS := 1
JOBS ?= 10000

faults: $(VENV)/dev.stamp ## inject every fault into real nodes and write docs/explanations/reliability.md; JOBS=N with mutated messages
	$(BIN)/python tests/faults/run.py --jobs $(JOBS)

doctor-faults: $(VENV)/dev.stamp ## faults between two network namespaces, each of which vfl-node doctor must name; root, about five minutes
	$(BIN)/python tests/operations/faults.py

submit: ## JOB=FILE: submit a job file at the clinic of `docker compose up`, and wait for its end
	@test -f "$(JOB)" || { echo "name a job file: make submit JOB=my-job.yaml" >&2; exit 2; }
	docker compose run --rm --volume "$(abspath $(JOB)):/job.yaml:ro" example submit /job.yaml --config /config/node.yaml --wait --board "http://127.0.0.1:$${CLINIC_PORT:-8080}"

test-compose: $(VENV)/dev.stamp ## docker-compose.yml for real; needs a Docker engine
	$(BIN)/python -m pytest -m compose tests/compose

test-systemd: $(VENV)/dev.stamp ## the unit of deploy/systemd with a real node in a container; needs root, a Docker engine and debootstrap
	tests/deploy/systemd.sh

# What the extra `deploy` names: 108 MB of schemas, which the package itself never needs.
DEPLOY = $$(sed -n 's/^deploy = \[\(.*\)\].*/\1/p' pyproject.toml | sed 's/", "/ /; s/"//g')

build/deploy/stamp: pyproject.toml
	@mkdir -p $(@D) && $(PY) -m venv build/deploy/venv && build/deploy/venv/bin/pip install -qq --disable-pip-version-check $(DEPLOY) \
	  || { rm -rf build/deploy/venv; echo "what the extra deploy names does not install here: its step is skipped"; }
	@touch $@

deploy-check: $(VENV)/dev.stamp build/deploy/stamp ## verify the files of deploy: units, chart, alerts with their cases, metrics; what needs a tool that is absent is skipped
	@KUBERNETES_VALIDATE=build/deploy/venv/bin/kubernetes-validate deploy/check.sh

drill-restore: export OMP_NUM_THREADS := 1
drill-restore: $(VENV)/dev.stamp ## a node is killed in a job, loses its disk and is restored from a backup; says how long it takes, about 2 minutes
	$(BIN)/python -m tests.drills.restore

drill-rotate: export OMP_NUM_THREADS := 1
drill-rotate: $(VENV)/dev.stamp ## 92 days of two nodes' clocks in one job, while certificates and an authority change; a C compiler, about 15 minutes
	$(BIN)/python -m tests.drills.rotate

MINUTES ?= 120

soak: export OMP_NUM_THREADS := 1
soak: $(VENV)/dev.stamp ## two nodes at work for MINUTES=120, with kills and renewed certificates: whether anything grows; writes runs/soak
	$(BIN)/python -m tests.operations.soak --minutes $(MINUTES)

drill-upgrade: export OMP_NUM_THREADS := 1
drill-upgrade: $(VENV)/dev.stamp ## two nodes go from the release before (OLD=COMMIT) to this one while they work together, and one goes back; some minutes
	OLD="$(OLD)" $(BIN)/python -m tests.drills.upgrade

AXE := build/browser/node_modules/axe-core/axe.min.js

test-browser: $(VENV)/browser.stamp $(AXE) ## the board in a real Chromium: screens, keyboard, accessibility; needs Debian's chromium, chromium-driver and npm
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m browser tests/browser

$(AXE):
	@mkdir -p build/browser && cd build/browser && npm install --silent --no-fund --no-audit axe-core@4

test-ray: $(VENV)/ray.stamp ## the engine of several machines on real Ray clusters of this one, which the tests start; about three minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m ray tests/engines

lint: $(VENV)/dev.stamp ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp ## mypy, strict: the package, benchmarks, experiments and the example of an extension
	$(BIN)/mypy
	MYPYPATH=.:examples/extension $(BIN)/mypy examples/extension/vfl_example

contracts: $(VENV)/dev.stamp ## imports go down the layers only
	$(BIN)/lint-imports

generated := vfl_node/transport/generated
protoc = $(BIN)/python -m grpc_tools.protoc -I proto --python_out=$(1) --pyi_out=$(1) proto/vfl/v1/*.proto

proto: $(VENV)/dev.stamp ## generate code from proto/
	$(call protoc,$(generated))

proto-check: $(VENV)/dev.stamp ## the generated code is what proto/ gives
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && $(call protoc,$$fresh) && \
	diff -r -x __init__.py -x __pycache__ "$$fresh" $(generated) || { echo "run: make proto" >&2; exit 1; }

docs: $(VENV)/dev.stamp ## write the tables of messages and combinations, that of docs/index.md, and the report's schema: runs a small job of each kind, about a minute
	$(BIN)/python -m benchmarks.messages
	$(BIN)/python -m vfl_node.report.envelope > docs/report.schema.json
	$(BIN)/python -m benchmarks.combinations

site: $(VENV)/site.stamp ## the pages of docs/ as a site in build/site, to be read from a disk or any web server; needs no network
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@! grep -rlE '<(script|img|link)[^>]*(src|href)="?(https?:)?//' build/site --include='*.html' || { echo "these pages load something from elsewhere" >&2; exit 1; }
	@echo "build/site/index.html"

hashes: ## write constraints-hashes.txt: what the package needs at run time, with hashes (needs uv)
	uv pip compile pyproject.toml --constraints constraints.txt --universal --python-version 3.10 --generate-hashes \
	  --no-annotate --no-header --no-emit-index-url --quiet --output-file constraints-hashes.txt

bench-align: $(VENV)/bench.stamp ## measure the alignment protocols with every kernel beside other libraries', 100,000 ids, 10 to 15 minutes
	$(BIN)/python -m benchmarks.align

bench-paillier: $(VENV)/bench-paillier.stamp ## measure Paillier beside phe, one core and two, about 5 minutes
	$(BIN)/python -m benchmarks.paillier

bench-florist: export OMP_NUM_THREADS := 1

bench-florist: $(VENV)/dev.stamp ## measure split training beside one joint network, the audit, and the prediction service, about 3 minutes
	$(BIN)/python -m benchmarks.florist
	$(BIN)/python -m benchmarks.audit
	$(BIN)/python -m benchmarks.predictions

bench-readers: export OMP_NUM_THREADS := 1

bench-readers: $(VENV)/dev.stamp ## measure reading a table of a million rows in every format, about 3 minutes
	$(BIN)/python -m benchmarks.readers

bench-unaligned: export OMP_NUM_THREADS := 1

bench-unaligned: $(VENV)/dev.stamp ## measure the FedAds network between two nodes beside one process, and the estimate of rows outside, some minutes
	$(BIN)/python -m benchmarks.unaligned
	$(BIN)/python -m benchmarks.estimate

bench-linkage: $(VENV)/bench-linkage.stamp ## measure the search for the nearest of 100,000 filters beside faiss and anonlink, about 5 minutes
	$(BIN)/python -m benchmarks.linkage --out runs/bench/linkage.json

bench-upsi: export OMP_NUM_THREADS := 1

bench-upsi: $(VENV)/dev.stamp ## measure upsi of 1,000 ids against a million, a first job and a later one, about 10 s
	$(BIN)/python -m benchmarks.upsi --out runs/bench/upsi.json

bench-hidden: $(VENV)/dev.stamp ## measure training in shares beside Paillier and split training, about 5 minutes
	$(BIN)/python -m benchmarks.hidden --out runs/bench/hidden.json

bench-trees: $(VENV)/dev.stamp ## measure trees in shares, and CPU and memory of each role, about 4 minutes
	$(BIN)/python -m benchmarks.trees --out runs/bench/trees.json

bench-statistics: $(VENV)/dev.stamp ## statistics of columns in shares: seconds, bytes, CPU and memory of each role
	$(BIN)/python -m benchmarks.statistics_in_shares

bench-split: export OMP_NUM_THREADS := 1

bench-split: $(VENV)/dev.stamp ## measure a step of split training between two nodes beside one joint network, about 2 minutes
	$(BIN)/python -m benchmarks.split

bench-serving: export OMP_NUM_THREADS := 1

bench-serving: $(VENV)/dev.stamp ## measure requests for predictions between two nodes: first, repeated, many at once, about 2 minutes
	$(BIN)/python -m benchmarks.serving

capacity: export OMP_NUM_THREADS := 1

capacity: $(VENV)/dev.stamp ## measure jobs of many kinds beside vfl-node estimate, and write docs/reference/capacity.md, about 5 minutes if nothing else runs
	$(BIN)/python -m benchmarks.capacity

clean: ## remove the environment, the demo's output and caches
	rm -rf $(VENV) runs/demo build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What the extra `docs` names, without the package itself, which a site does not need.
SITE = $$(sed -n 's/^docs = \[\(.*\)\].*/\1/p' pyproject.toml | sed 's/", "/ /; s/"//g')

COMPILED := setup.py $(wildcard native/*)

# One environment, a stamp for what each purpose needs on top of the one before it.
$(BIN)/python:
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "vfl-node needs Python 3.10 or newer, and '$(PY)' is: $$($(PY) --version 2>&1)" >&2; \
	  echo "  hint: make PY=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PY) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/demo.stamp: pyproject.toml constraints.txt $(COMPILED) | $(BIN)/python
	@echo "Installing vfl-node into $(VENV) (once; PyTorch is large) …"
	@$(PIP) -e '.[demo]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt $(COMPILED) | $(BIN)/python
	@echo "Installing vfl-node and its development tools into $(VENV) (once; PyTorch is large) …"
	@$(PIP) -e '.[dev]'
	@touch $(VENV)/demo.stamp $@

$(VENV)/browser.stamp: pyproject.toml constraints.txt | $(VENV)/dev.stamp
	@$(PIP) 'selenium>=4.20,<5'
	@touch $@

$(VENV)/ray.stamp: pyproject.toml constraints.txt | $(VENV)/dev.stamp
	@$(PIP) 'ray>=2.52,<3'
	@touch $@

$(VENV)/site.stamp: pyproject.toml constraints.txt | $(BIN)/python
	@$(PIP) $(SITE)
	@touch $@

$(VENV)/bench.stamp: pyproject.toml constraints.txt | $(VENV)/dev.stamp
	@$(PIP) --only-binary openmined-psi --no-deps 'openmined-psi>=2.0.5,<3' || echo "openmined-psi does not install here; the table goes without it"
	@$(PIP) --only-binary spu --no-deps 'spu>=0.9.5,<0.10' || echo "spu does not install here; the table goes without it"
	@touch $@

$(VENV)/bench-paillier.stamp: pyproject.toml constraints.txt | $(VENV)/dev.stamp
	@$(PIP) --no-deps 'phe>=1.5,<2' || echo "phe does not install here; the table goes without it"
	@touch $@

$(VENV)/bench-linkage.stamp: pyproject.toml constraints.txt | $(VENV)/dev.stamp
	@$(PIP) --only-binary :all: --no-deps 'faiss-cpu>=1.12,<2' || echo "faiss-cpu does not install here; the table goes without it"
	@$(PIP) --only-binary :all: --no-deps 'anonlink>=0.15,<1' 'bitarray>=3,<4' || echo "anonlink does not install here; the table goes without it"
	@touch $@
