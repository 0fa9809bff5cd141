#!/usr/bin/env bash
# Whether step timing fits an installed vLLM. It is applied in memory when the engine starts, and changes no file:
# --status says whether an earlier version of connector-tax changed some, --revert takes that out.
#
#   patches/apply.sh --engine-python /path/to/venv/bin/python [--revert | --status]
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/scheduler_step_timing.py" "$@"
