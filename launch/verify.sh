#!/usr/bin/env bash
# Preflight of one configuration by hand: launch it, ask it, stop it, print what was found.
#
#   CONFIG=config/config.yaml ENGINE_PYTHON=... bash launch/verify.sh noop_connector
#
# PYTHON is the interpreter that the pipeline runs in; without it .venv's where there is one, else python3.
# Exit status 0: it can be measured here. The log stays in results/<campaign>/preflight/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-.venv/bin/python}
command -v "$python" >/dev/null || python=python3
export PYTHONPATH=$PWD/src${PYTHONPATH:+:$PYTHONPATH}
config=${CONFIG:-config/config.yaml}
campaign=$("$python" scripts/plan.py --configfile "$config" --print-path)
exec "$python" scripts/preflight.py --campaign-file "$campaign" --only "${1:?which configuration}"
