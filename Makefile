# Fumarole. `make demo` starts the whole system; `make test` runs all tests. Each installs what it needs.

PYTHON := .venv/bin/python
STAMP := .venv/.installed
LOCKS := deploy/locks/dev.txt
# Six processes for two cores: tests wait for browsers, clusters and notebooks two thirds of the time.
WORKERS ?= 6
# If this is set, every process that a test or the demo starts compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo screenshots apps test test-failed test-long check format system locks goldens bench soak fuzz mutants docs dist clean

help: ## list what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

install: $(STAMP) ## make .venv with everything, and the pages' assets
	@$(PYTHON) gateway/web/build.py gateway/web controller/web

$(STAMP): $(LOCKS) pyproject.toml deploy/install.sh
	@sh deploy/install.sh .venv $(LOCKS)
	@touch $@

demo: install ## run everything on this machine (SMOKE=1: check it and end; ORCHESTRATOR=<origin>: with yours)
	@exec $(PYTHON) -m deploy.local.demo $(if $(SMOKE),--smoke) $(if $(ORCHESTRATOR),--orchestrator $(ORCHESTRATOR))

test: install ## run the tests
	@$(PYTHON) -m pytest -n $(WORKERS) --dist loadgroup -m "not long"

test-failed: install ## run what failed once more, one after another
	@$(PYTHON) -m pytest --last-failed --last-failed-no-failures none -m "not long" -v

test-long: install ## run the soaks, chaos runs and models
	@$(PYTHON) -m pytest -m long --timeout 7200

bench: install ## measure the gateway beside its peers, 32 min (QUICK=1: 4 min)
	@$(PYTHON) -m benchmarks $(if $(QUICK),--quick)

soak: install ## run the gateway under 10,000 sockets (HOURS=24); writes docs/soak.md
	@$(PYTHON) -m benchmarks.soak --hours $(or $(HOURS),24) --docs docs

fuzz: install ## fuzz what parses the outside world (SECONDS=60)
	@$(PYTHON) -m tests.fuzz --seconds $(or $(SECONDS),60)

mutants: install ## mutate the modules that decide, 1 h (ONLY=gateway/live, SAMPLE=100); writes docs/mutants.md
	@$(PYTHON) -m tests.mutants $(if $(SAMPLE),--sample $(SAMPLE)) $(ONLY)

screenshots: install ## take a picture of every page in every state, into docs/pages
	@$(PYTHON) -m tests.gateway.pages.screenshots

apps: install ## use eleven apps in jobs in a browser; writes docs/apps.md
	@FUMAROLE_APPS_PAGE=1 $(PYTHON) -m pytest tests/e2e/test_apps.py -m long -v

check: install ## lint, format, types, import contracts, and the length of the docs' sentences
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-logo
	@$(PYTHON) -m deploy.long_sentences

docs: install ## build the documentation as a site, into .site/
	@$(PYTHON) -m deploy.settings_page
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build -q

dist: install ## build sdist and wheel, the pages' assets in them, into dist/
	@rm -rf dist
	@$(PYTHON) -m hatchling build

format: install ## format the source
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

system: ## install what only the system's package manager has (needs root)
	@sh deploy/system.sh

goldens: install ## write the manifests in tests/controller/goldens and docs/plugins anew
	@$(PYTHON) -m tests.controller.goldens.render

locks: install ## renew the locks from pyproject.toml
	@sh deploy/lock.sh

clean: ## remove what was made here
	rm -rf .venv .site */web/build */web/node_modules
