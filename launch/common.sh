#!/usr/bin/env bash
# One configuration by hand, from this checkout:
#
#   MODEL=FOLDER [ENGINE_PYTHON=...] [PORT=8000] bash launch/common.sh launch nixl_both [ARGUMENT...]   becomes its engine
#   [CONFIG=config/config.yaml] ENGINE_PYTHON=... bash launch/common.sh verify nixl_both                preflight; exit status 0: it can be measured here
#
# It runs in PYTHON; without it in .venv's, the engine's, or the first python3.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
for python in "${PYTHON:-}" "$root/.venv/bin/python" "${ENGINE_PYTHON:-}" python3; do
  ! command -v "$python" > /dev/null || break
done
PYTHONPATH=$root/src${PYTHONPATH:+:$PYTHONPATH} exec "$python" -m connector_tax.run.measure.by_hand "$@"
