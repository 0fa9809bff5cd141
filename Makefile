# A fresh machine needs two commands: `make demo` and `make test`.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= $(shell command -v python3.11 || command -v python3)
CACHE := $(or $(CONNECTOR_TAX_CACHE),$(HOME)/.cache/connector-tax)
BIN := .venv/bin
RUN := $(BIN)/connector-tax run
CONFIG ?= config/config.yaml

.PHONY: help env dev demo demo-vllm demo-cpu test test-full test-long test-slurm test-quick lint audit docs gpu-smoke format status revert-patch plan fleet figures clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

env: .venv/.complete  ## create .venv from requirements.lock: what a campaign and its report need
dev: .venv/.dev  ## add what checks the code, from requirements-dev.lock

# One at a time: who waited for another one's installation finds it done.
.venv/.complete: requirements.lock
	@exec 9> .env.lock; flock 9; if [ .venv/.complete -nt requirements.lock ]; then exit 0; fi; $(MAKE) --no-print-directory venv

.PHONY: venv
venv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=")'
	rm -rf .venv
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -c 'import snakemake, numpy, uvloop'
	$(BIN)/pip install --quiet --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch .venv/.complete

.venv/.dev: requirements-dev.lock .venv/.complete
	$(BIN)/pip install --quiet --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	touch $@

demo: env  ## the whole study on the embedded engine, four to nine minutes
	$(RUN) config/demo.yaml

SHAPE := Qwen3-Coder-30B-A3B-Instruct
demo-vllm: env  ## real vLLM and real connectors on a virtual GPU, asynchronous and synchronous, about an hour and a half
	export ENGINE_PYTHON=$$(scripts/make_engine_env.sh) MODEL_FOLDER=$(CACHE)/$(SHAPE) \
	  && "$$ENGINE_PYTHON" scripts/make_model_folder.py config/models/$(SHAPE).json "$$MODEL_FOLDER" \
	  && $(RUN) config/virtual-gpu.yaml \
	  && $(RUN) config/virtual-gpu-sync.yaml

demo-cpu: env  ## a small campaign on real vLLM whose model really runs, on two CPU cores, about twenty minutes
	engine=$$(scripts/make_engine_env.sh) && "$$engine" scripts/make_model_folder.py config/models/tiny-qwen3.json $(CACHE)/tiny-model \
	  && ENGINE_PYTHON=$$engine TINY_MODEL=$(CACHE)/tiny-model $(RUN) config/vllm-cpu.yaml

gpu-smoke: env  ## plain, no-op and NIXL on this host's GPU by the vLLM of ENGINE_PYTHON, with a report, about ten minutes; says what is missing
	@$(RUN) --smoke

plan: env  ## simulate CONFIG in virtual time: how long it takes, how small a tax it finds
	$(BIN)/connector-tax plan $(CONFIG)

ROOT ?= results/demo
FLEET ?= $(if $(filter results/demo,$(ROOT)),config/fleet_demo.yaml,config/fleet.yaml)
fleet: env  ## put the campaign at ROOT into the modelled fleets of FLEET
	$(BIN)/connector-tax fleet $(ROOT) --fleet $(FLEET)

# `make test-full` has the tests that take minutes: real vLLM, containers, SLURM, a browser, published
# campaigns made again, the look of every figure. `make test` runs one small campaign of real vLLM.
# `make test-long` has campaigns whose subject a shorter test covers, too, and what rarely changes: NIXL's
# roles, the order of hooks, older releases.
BROWSER := $(wildcard tests/unit/*/test_*_in_a_browser.py)
CAMPAIGNS := $(patsubst %,tests/emulated/test_%.py,two_slots connector_off phase_d package repeated_launches)
LONGER := tests/emulated/test_gpu_host.py tests/emulated/test_known_truth.py \
  tests/contract/test_published_campaign.py tests/unit/figures/test_pictures.py
ROLES := $(patsubst %,tests/vllm/test_%.py,hook_order nixl_roles kv_cache_of_older_releases) tests/unit/rehearsal/test_published_plan.py
FULL := tests/vllm tests/container tests/slurm $(BROWSER) $(LONGER) $(ROLES) $(CAMPAIGNS)
SMOKE := tests/vllm/test_real_vllm.py
# One test kills a campaign in two ways; its SIGTERM case is in test-long.
KILLED := 'tests/emulated/test_kill_and_resume.py::test_killing_snakemake_leaves_nothing_running_and_loses_no_cell[15]'
# Sittings of seconds, run alone: they check daily what a lent GPU host will run.
REHEARSAL := tests/emulated/test_gpu_host.py::test_what_two_commands_measured_comes_home_as_taxes
# Tests of outcomes, not of times: two at a time, the longest first. The rest of tests/slurm is in test-slurm.
FULL_BESIDE := tests/emulated/test_gpu_host.py tests/slurm/test_small_campaign.py \
  tests/vllm/test_check.py $(filter-out %/test_gpu_host.py,$(LONGER)) \
  $(patsubst %,tests/vllm/test_%.py,stores bootstrap_server) $(BROWSER)

# Tests against the clock run alone.
TIMED := $(patsubst %,tests/unit/loadgen/test_%.py,workers measure_cell load_generator fixed_numbers host_state \
  metrics_sampler selftest) tests/unit/load/test_load_against_the_clock.py
# Tests of the outcome of campaigns, engines and loads. They mostly wait, so four at a time keep two cores
# busy; the longest first.
ENGINES := tests/unit/engine tests/unit/measure tests/unit/sweep
LONG := $(patsubst %,tests/emulated/test_%.py,failures_are_results demo_dag kill_and_resume) \
  $(patsubst %,tests/unit/measure/test_%.py,every_process_killed disk_faults failure an_engine_that_fails) \
  $(patsubst %,tests/emulated/test_%.py,sittings phase_c snakemake_report no_planted_secret_is_kept)
BESIDE := $(SMOKE) $(LONG) $(filter-out $(LONG) $(TIMED) $(LONGER) $(CAMPAIGNS),\
  $(wildcard $(patsubst %,%/test_*.py,tests/emulated $(ENGINES) tests/unit/loadgen tests/unit/load)))
# The rest runs on all cores.
UNTIMED := -n auto --dist loadfile $(patsubst %,--ignore=%,$(ENGINES) tests/emulated tests/unit/loadgen tests/unit/load $(FULL))

test: lint  ## every check but those of test-full and test-long, on two cores about 19 minutes
	$(BIN)/python -m pytest $(UNTIMED)
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder --deselect $(KILLED) $(BESIDE)
	$(BIN)/python -m pytest $(TIMED) $(REHEARSAL)

test-full: dev  ## what test leaves out: real vLLM, containers, SLURM, a browser, published campaigns; CI runs both
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --deselect $(REHEARSAL) $(FULL_BESIDE)
	$(BIN)/python -m pytest tests/vllm tests/container $(SMOKE:%=--ignore=%) $(FULL_BESIDE:%=--ignore=%) $(ROLES:%=--ignore=%)

test-long: dev  ## whole campaigns, NIXL's roles and the order of hooks, for a change of what launches, kills or resumes: about ten minutes
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ROLES) $(CAMPAIGNS) $(KILLED)

test-slurm: dev plugins  ## campaigns through a real SLURM of this machine, about ten minutes; root, apt-get install slurm-wlm munge
	$(BIN)/python -m pytest tests/slurm

# Snakemake's plugins for batch systems are not in the lock files. tests/slurm finds them in a folder of their
# own.
.PHONY: plugins
plugins: .plugins/.complete

.plugins/.complete: tests/slurm/requirements.lock | .venv/.complete
	rm -rf .plugins
	$(BIN)/pip install --quiet --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: --target .plugins -r $<
	touch $@

test-quick: lint  ## test without the runs of the load generator, the embedded engine and real vLLM
	$(BIN)/python -m pytest $(UNTIMED)
	$(BIN)/python -m pytest -n 4 --dist loadfile $(ENGINES)

lint: dev  ## what reads the code without running it
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target types style

.PHONY: types style
types:
	$(BIN)/mypy

style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow/rules
	$(BIN)/lint-imports
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive src scripts launch patches
	bash -n launch/*.sh patches/apply.sh scripts/*.sh .ci/run

docs: dev  ## build the documentation as a site, site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: dev  ## apply the formatter
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow/rules

figures: env  ## bring the analysis, figures and report of CONFIG up to date with its raw results; measures nothing
	$(RUN) $(CONFIG) report

status:  ## what is done, running, skipped and left of CONFIG
	@# Never builds the environment: another command may be using it.
	@test -e .venv/.complete || { echo "error: nothing is installed yet, or it is being installed: make env" >&2; exit 2; }
	@$(BIN)/connector-tax status $(CONFIG)

revert-patch: env  ## take out what an earlier version wrote into ENGINE_PYTHON's vLLM
	@test -n "$${ENGINE_PYTHON:-}" || { echo "error: ENGINE_PYTHON is not set: give the interpreter whose vLLM is meant" >&2; exit 2; }
	patches/apply.sh --revert

audit:  ## what requirements-dev.lock installs, as a list (sbom.cdx.json, CycloneDX), and what of it is known to be vulnerable
	[ -x .audit/bin/pip-audit ] || { python3 -m venv .audit && .audit/bin/pip install --quiet cyclonedx-bom==7.5.0 pip-audit==2.10.1; }
	.audit/bin/cyclonedx-py requirements requirements-dev.lock --output-reproducible -o sbom.cdx.json
	@rm -f .audit/found   # missing afterwards: the query failed, which is reported and is no vulnerability
	.audit/bin/pip-audit -r requirements-dev.lock --require-hashes --disable-pip --progress-spinner off -o .audit/found; code=$$?; \
	  [ ! -s .audit/found ] || { cat .audit/found; exit $$code; }

clean:  ## remove caches; results and environments stay
	rm -rf .snakemake .mypy_cache .ruff_cache .hypothesis .import_linter_cache site
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
