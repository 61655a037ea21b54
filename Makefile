# The same commands for a person and for CI. Each sets itself up on a fresh machine.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
ARGS   ?=

.PHONY: setup demo test lint type docs check bench torture studio dist check-dist clean

setup: $(READY)

# Installed again only when what is to be installed changes.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@

demo: $(READY)
	$(BIN)/python -m mtm demo $(ARGS)

test: $(READY)
	$(BIN)/python -m pytest $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(READY)
	$(BIN)/mypy

# Warnings are errors (--quiet would hide them from --strict, too). The variable silences an
# announcement of the theme's.
docs: $(READY)
	$(BIN)/python docs/draw_pictures.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

check: lint type docs test

bench: $(READY)
	$(BIN)/python -m benchmarks $(ARGS)

# Faults on purpose; under an hour on two quiet cores, half of it a soak on one of them. Parts that
# need root say so, and are left out elsewhere.
torture: $(READY)
	$(BIN)/python -m torture $(ARGS)

# The page of `mtm studio`, from studio/ into the package; needs Node.js 20 or newer.
studio:
	npm --prefix studio ci --ignore-scripts --no-audit --no-fund
	npm --prefix studio run build

# The source distribution, from it the wheel, and the bill of materials (CycloneDX).
dist: $(READY)
	rm -rf dist
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m build
	$(BIN)/python .ci/sbom.py dist

check-dist: dist
	$(BIN)/python .ci/check_dist.py dist

clean:
	rm -rf $(VENV) studio/node_modules build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
