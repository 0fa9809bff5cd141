#!/usr/bin/env bash
# Launch one configuration by hand from this checkout, or check by exit status whether it can be measured
# here.
#
#   MODEL=FOLDER [ENGINE_PYTHON=...] [PORT=8000] bash launch/common.sh launch nixl_both [ARGUMENT...]
#   ENGINE_PYTHON=... [CONFIG=config/config.yaml] bash launch/common.sh verify nixl_both
#
# Runs in the first of PYTHON, .venv's, the engine's and python3 that has the required packages.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
for python in "${PYTHON:-}" "$root/.venv/bin/python" "${ENGINE_PYTHON:-}" python3; do
  if "$python" -c 'import jsonschema, msgspec, yaml' 2> /dev/null; then
    PYTHONPATH=$root/src${PYTHONPATH:+:$PYTHONPATH} exec "$python" -m connector_tax.run.measure.by_hand "$@"
  fi
done
echo "error: no Python here has the packages of connector-tax. Set PYTHON to one that has: make env makes .venv/bin/python." >&2
exit 2
