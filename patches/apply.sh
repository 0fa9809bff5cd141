#!/usr/bin/env bash
# Check whether step timing fits an installed vLLM. It is applied in memory when the engine starts and changes
# no file. --status reports changes by an earlier version of connector-tax, --revert removes them.
#
#   patches/apply.sh --engine-python /path/to/venv/bin/python [--revert | --status]
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/scheduler_step_timing.py" "$@"
