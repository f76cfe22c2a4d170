# Everything a fresh machine needs: Debian, Python 3.11 or newer, make.
#
#   make dev     run the service on loopback with a sample fleet
#   make test    everything that a change must pass
#   make test-hosts  the drivers for hypervisors, on libvirt and QEMU from Debian (root only)
#   make test-kubernetes  the hook for Kubernetes, on an API server that is built for it first
#   make portable  the tests of what runs on macOS and Windows, without what those do not have
#   make check   what to run after every change: lint, and the quick tests
#   make stress  tests many times on a busy machine, to find those that depend on who comes first
#                (FILES="tests/system/cli/test_dev.py …" TIMES=10 MINUTES=30 SEED=…)
#   make lab     three control nodes, three hosts and six guests while everything fails, and a table
#                of what came of it (MINUTES=60 LAB_ARGS="--database patroni --seed 1")
#   make lint    the part of it that only reads
#   make conformance ENDPOINT=http://HOST:PORT    send requests to any endpoint, and hold it to the
#                wire contract (forewarn conformance checks recordings instead)
#   make fuzz    look for requests that two ways of answering take differently
#   make bench   measurements, never part of the tests (BENCH=poll, platform, cluster, kit,
#                agent, portal or hostile)
#   make docs    the documentation as a site, in site/
#   make screenshots  the pictures of the portal in docs/images/portal anew
#   make coverage  which lines and branches the quick tests, or TESTS="…", do not reach: a table, no goal
#   make dist    the wheel and the source distribution, checked and tried out, in dist/
#   make deb     Debian packages of the service, of a node alone and of the agent alone, in dist/
#   make rpm     an RPM package of the agent alone, in dist/
#   make image   an image of the agent as an OCI layout, in dist/ (root only)
#   make release VERSION=0.2.0  these but for the image, built from a commit that is tagged, and their checksums;
#                RELEASE_ARGS=--dry-run keeps neither (docs/contribute/releasing.md)
#   make lock    write the requirement locks anew

PYTHON ?= $(shell tools/find-python)
VENV := .venv
CLIENTS := .venv-clients
BENCHES := .venv-bench
AZURE := .venv-azure
HOSTS := .venv-hosts
BIN := $(VENV)/bin
PORTAL := $(VENV)/portal
AGENT_SITE := $(VENV)/agent-site.lock
DEV_ARGS ?=
BENCH_PYTHON ?= $(firstword $(wildcard /usr/bin/python3) $(PYTHON))
BENCH ?= poll
BENCH_ARGS ?=
LAB_ARGS ?=
CHECKED := tests/unit tests/ports tests/wire
ENDPOINT ?=
CONFORMANCE_ARGS ?=
TESTS ?=
VERSION ?=
RELEASE_ARGS ?=

# What is compiled once need not be compiled again by every process that the tests start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: dev check quick-tests conformance test tests test-hosts test-hosts-alone test-kubernetes \
	portable-beside-tests portable stress lab packages lint fuzz bench docs screenshots coverage dist deb rpm image release lock clean

dev: $(VENV)/.server
	@exec $(BIN)/forewarn dev $(DEV_ARGS)

# Much of what comes before the tests is waiting for a network, and much of what the tests do is
# waiting, too: what can be looked at beside them is. Only the tests say at once how far they are.
# With TEST_BESIDE what has failed is run again when neither tests nor portable tests are running.
TOGETHER := $(MAKE) --output-sync --no-print-directory --jobs
test:
	@TEST_BESIDE=yes $(TOGETHER) 5 tests portable-beside-tests

tests: packages $(CLIENTS)/.ready $(AZURE)/.ready $(AGENT_SITE)
	+$(BIN)/python tools/run-tests $(BIN)/pytest

portable-beside-tests: packages lint
	@TEST_PROCESSES=1 $(MAKE) --no-print-directory portable

# Real hypervisors, in namespaces of their own: not part of `make test`.
# Two at a time in one checkout would take each other's packages away.
test-hosts: $(VENV)/.ready
	@mkdir -p $(HOSTS)
	@flock $(HOSTS)/.lock $(MAKE) --no-print-directory test-hosts-alone

test-hosts-alone:
	tools/test-hosts $(VENV) $(HOSTS) $(BIN)/pytest $(or $(TESTS),packages/libvirt/tests)
	rm -rf $(HOSTS)/others
	tools/uv-pip install --python $(BIN)/python --no-deps --no-build-isolation \
		--target $(HOSTS)/others packages/incus packages/proxmox
	PYTHONPATH=$(HOSTS)/others $(BIN)/pytest packages/incus/tests packages/proxmox/tests

# kube-apiserver and etcd, without controllers and kubelets: not part of `make test`.
test-kubernetes: packages $(VENV)/.ready
	tools/test-kubernetes $(BIN)/pytest $(or $(TESTS),$(wildcard tests/system/*/test_kubernetes*.py))

# What runs on macOS and Windows as well, without what those do not have.
portable: $(VENV)/.ready
	tools/portable-tests $(BIN)/pytest

# What depends on who comes first, or on a number of seconds, fails here sooner than elsewhere.
FILES ?=
TIMES ?=
MINUTES ?=
SEED ?=
LOAD ?=
stress: packages $(CLIENTS)/.ready $(AZURE)/.ready $(AGENT_SITE)
	@TIMES="$(TIMES)" MINUTES="$(MINUTES)" SEED="$(SEED)" LOAD="$(LOAD)" \
		$(BIN)/python tools/stress-tests $(BIN)/pytest $(FILES)

lab: packages $(VENV)/.ready
	PYTHONPATH=tests $(BIN)/python -m lab --minutes "$(or $(MINUTES),60)" $(LAB_ARGS)

check: $(VENV)/.ready
	@$(TOGETHER) 2 lint quick-tests

quick-tests: $(VENV)/.ready
	+HYPOTHESIS_PROFILE=check $(BIN)/python tools/run-tests $(BIN)/pytest $(CHECKED)

coverage: $(VENV)/.ready
	@rm -f .coverage .coverage.*
	-$(BIN)/coverage run -m pytest -q $(or $(TESTS),$(CHECKED) tests/integration)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

# The tests of the wire contract that need nothing but an address, at that address and no other.
conformance: $(VENV)/.ready
	@test -n "$(ENDPOINT)" || { echo "make conformance: pass ENDPOINT=http://HOST:PORT" >&2; exit 2; }
	$(BIN)/pytest tests/wire --endpoint "$(ENDPOINT)" $(CONFORMANCE_ARGS)

# What the tests need beside Python.
packages:
	tools/test-packages

# The portal is JavaScript without a build step; its types are in comments, and in tools/portal.
lint: $(VENV)/.ready $(PORTAL)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PORTAL)/node $(PORTAL)/node_modules/typescript/bin/tsc
	$(PORTAL)/node $(PORTAL)/node_modules/eslint/bin/eslint.js \
		--config tools/portal/eslint.config.js src/forewarn/portal

# With and without a Front, for as long as one likes: FUZZ_SECONDS=0 is until ctrl-C.
FUZZ_SECONDS ?= 60
fuzz: $(VENV)/.ready
	PYTHONPATH=tests $(BIN)/python -m differential.fuzz --seconds $(FUZZ_SECONDS)

bench: $(BENCHES)/.ready
	@case "$(BENCH)" in poll|hostile) tools/bench-packages;; esac
	$(BENCHES)/bin/python -m bench.$(BENCH) $(BENCH_ARGS)

# Links are checked, and nothing in it is loaded from elsewhere.
docs: $(VENV)/.ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site

# Each page of the portal, in Debian's Chromium; they change only where a page does.
screenshots: $(VENV)/.ready
	PYTHONPATH=tests $(BIN)/python -m helpers.write_pictures

# As PyPI takes them; the tests install what was built into empty environments, and use it there.
dist: $(VENV)/.ready
	tools/build-dist $(VENV) dist
	FOREWARN_DIST=dist $(BIN)/pytest tests/system/packaging

# Service and node are for the distribution's own Python, whatever the environment above was made
# with; the agent is for all that are listed in packaging/agent/pythons.
DEB_PYTHON ?= /usr/bin/python3
deb: $(VENV)/.ready
	tools/build-deb $(VENV) $(DEB_PYTHON) dist
	tools/build-agent $(VENV) dist deb

rpm: $(VENV)/.ready
	tools/build-agent $(VENV) dist rpm

image: $(VENV)/.ready
	tools/build-image $(VENV) dist

release: $(VENV)/.ready
	@test -n "$(VERSION)" || { echo "make release: pass VERSION=, such as 0.2.0" >&2; exit 2; }
	tools/release $(VERSION) $(RELEASE_ARGS)

# What the service needs to run, and nothing else. Without --no-deps uv also keeps in its cache what
# depends on what, by which tests install the same elsewhere.
SERVER_LOCKS := requirements/server.lock requirements/build.lock
MAKES_VENV := requirements/pip.lock tools/make-venv tools/uv-pip
$(VENV)/.server: $(VENV)/.pip
	@tools/uv-pip install --python $(BIN)/python --require-hashes $(SERVER_LOCKS:%=--requirement %)
	@tools/uv-pip install --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.pip: $(SERVER_LOCKS) requirements/dev.lock pyproject.toml $(MAKES_VENV)
	@echo "Installing forewarn into $(VENV) (first run, or its requirements have changed) …"
	@tools/make-venv $(PYTHON) $(VENV)
	@touch $@

# What tests, linters and packaging need besides.
$(VENV)/.ready: $(VENV)/.server
	@echo "Installing what tests and linters need into $(VENV) (first run, or they have changed) …"
	@tools/uv-pip install --python $(BIN)/python --require-hashes --requirement requirements/dev.lock
	@$(BIN)/python -m compileall -q src  # the tests start many processes
	@touch $@

# What checks the portal, with node from a wheel.
$(PORTAL)/.ready: $(VENV)/.ready tools/portal/package.json tools/portal/package-lock.json tools/portal-npm
	@echo "Installing what checks the portal into $(PORTAL) (first run, or it has changed) …"
	@tools/portal-npm install $(PORTAL)
	@touch $@

# What the packages of the agent contain; whoever builds them fetches what is missing.
$(AGENT_SITE): $(VENV)/.ready requirements/agent.lock tools/agent-site
	@tools/agent-site $(VENV)
	@touch $@

# Published clients live apart: what they depend on is theirs, not ours.
$(CLIENTS)/.ready: requirements/clients.lock tools/client-packages $(VENV)/.pip
	tools/make-venv $(PYTHON) $(CLIENTS) requirements/clients.lock
	tools/client-packages $(CLIENTS)/debian
	@touch $@

# az and Azure's SDKs, likewise; an old SDK apart from the current one.
$(AZURE)/.ready: requirements/azure.lock requirements/azure-old.lock $(VENV)/.pip
	tools/make-venv $(PYTHON) $(AZURE) requirements/azure.lock
	tools/uv-pip install --python $(AZURE)/bin/python --require-hashes --no-deps \
		--target $(AZURE)/old --requirement requirements/azure-old.lock
	@touch $@

# What is measured runs on the distribution's Python: one that was built without profile-guided
# optimisation is a fifth slower. The peers: a Go toolchain here, nginx and wrk from Debian.
$(BENCHES)/.ready: requirements/dev.lock requirements/bench.lock pyproject.toml $(VENV)/.pip
	tools/make-venv $(BENCH_PYTHON) $(BENCHES) requirements/dev.lock requirements/bench.lock
	tools/uv-pip install --python $(BENCHES)/bin/python --no-deps --no-build-isolation --editable .
	@touch $@

lock: $(VENV)/.pip
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
		--python-version 3.11 --upgrade --extra server --extra test --group dev \
		pyproject.toml --output-file requirements/dev.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
		--python-version 3.11 --extra server --extra postgres --constraints requirements/dev.lock \
		pyproject.toml --output-file requirements/server.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
		--python-version 3.11 --constraints requirements/dev.lock \
		pyproject.toml --output-file requirements/agent.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
		--python-version 3.11 --extra node --constraints requirements/dev.lock \
		pyproject.toml --output-file requirements/node.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
		--python-version 3.11 --constraints requirements/dev.lock requirements/build.in \
		--output-file requirements/build.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
		--python-version 3.11 --upgrade requirements/clients.in \
		--output-file requirements/clients.lock
	for lock in azure azure-old; do \
		$(BIN)/uv pip compile --quiet --universal --no-deps --generate-hashes --no-emit-index-url \
			--no-header --python-version 3.11 requirements/$$lock.in \
			--output-file requirements/$$lock.lock || exit 1; \
	done
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
		--python-version 3.11 --upgrade requirements/bench.in \
		--output-file requirements/bench.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
		--python-version 3.11 --upgrade requirements/pip.in --output-file requirements/pip.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
		--python-version 3.11 --upgrade packages/libvirt/requirements.in \
		--output-file packages/libvirt/requirements.lock
	tools/portal-npm lock

clean:
	rm -rf $(VENV) $(CLIENTS) $(AZURE) $(BENCHES) $(HOSTS) .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage build dist site
