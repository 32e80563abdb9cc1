PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test test-all check bench clean
.DELETE_ON_ERROR:

demo: $(VENV)/examples.stamp
	$(BIN)/qrprof doctor --measure
	$(BIN)/qrprof trace examples/soap_charlm.py
	$(BIN)/qrprof rank

test: $(VENV)/test.stamp
	$(BIN)/pytest -m "not slow"

test-all: $(VENV)/test.stamp
	$(BIN)/pytest

check: $(VENV)/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/test.stamp
	$(BIN)/python benchmarks/all.py

clean:
	rm -rf $(VENV)

# A stamp says that the extra of its name is installed.
$(VENV)/%.stamp: pyproject.toml constraints.txt | $(VENV)/pyvenv.cfg
	$(BIN)/python -m pip install -c constraints.txt -e '.[$*]'
	touch $@

$(VENV)/pyvenv.cfg:
	$(PYTHON) -c 'import sys; sys.exit("qrprof needs Python 3.11 or newer: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
