#!/usr/bin/env bash
# Apply the step-timing patch to an installed vLLM; --revert takes it away, --status only looks.
#
#   patches/apply.sh --engine-python /path/to/venv/bin/python [--revert | --status]
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/scheduler_step_timing.py" "$@"
