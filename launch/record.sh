# Sourced by common.sh: prints the engine's command, with what shapes it, as a script that runs in any clone.
# Reads `root` (this project's folder), `command` (without taskset) and common.sh's variables.

# One word for bash. This project's folder and the home folder become variables; a word in $'...' stays as it is,
# since nothing is expanded in there.
portable() {
  local word project home
  printf -v word %q "$1"
  printf -v project %q "$root/"
  printf -v home %q "${HOME:-}/"
  if [ "${word:0:2}" != "\$'" ]; then
    word=${word//"$project"/'"$CONNECTOR_TAX_PROJECT"/'}
    [ "$home" = / ] || word=${word//"$home"/'"$HOME"/'}
  fi
  printf %s "$word"
}

# Names of the set variables that shape an engine; not the pipeline's own, and no secrets.
shaping() {
  local name
  for name in $(compgen -e | grep -E '^(VLLM|LMCACHE|MOONCAKE|NIXL|UCX|NCCL|OMP|MKL|CUDA|TORCH|PYTORCH|HF|CONNECTOR_TAX|LD)_' || true); do
    case "$name" in
      CONNECTOR_TAX_CACHE|CONNECTOR_TAX_DATE|CONNECTOR_TAX_PROJECT|CONNECTOR_TAX_RUN|CONNECTOR_TAX_TARGETS) continue ;;
      *KEY*|*TOKEN*|*SECRET*|*PASSW*|*CREDENTIAL*|*AUTH*) continue ;;
    esac
    case "${!name:-}" in *://*@*|hf_*|sk-*) continue ;; esac   # secrets under harmless names
    [ -z "${!name:-}" ] || echo "$name"
  done
}

launch_sh() {
  local name word before='' model=$MODEL needs='vLLM; env.txt beside this script names its version'
  case "$model" in ./*|../*) model=$PWD/${model#./} ;; esac
  case "$ENGINE_MODULE" in connector_tax.*) needs='the packages of requirements.lock (make env)' ;; esac
  cat <<'EOF'
#!/usr/bin/env bash
# The engine of this run. Run it by hand to get the same server, also from a copy in another clone:
#
#   ENGINE_PYTHON=/path/to/python MODEL=/path/to/model PORT=8000 bash launch.sh
#
# NAME=${NAME:-...} belongs to a machine: a value in the environment goes before the one that the run had.
# Everything else is as it was. Secrets are not in here.
set -euo pipefail
fail() { echo "error: launch.sh: $1" >&2; exit 2; }

# The project: the nearest folder above this script that has launch/common.sh, else the current folder.
if [ -z "${CONNECTOR_TAX_PROJECT:-}" ]; then
  CONNECTOR_TAX_PROJECT=$(cd "$(dirname "${BASH_SOURCE[0]:-$0}")" && pwd)
  until [ -f "$CONNECTOR_TAX_PROJECT/launch/common.sh" ] || [ "$CONNECTOR_TAX_PROJECT" = / ]; do
    CONNECTOR_TAX_PROJECT=$(dirname "$CONNECTOR_TAX_PROJECT")
  done
  [ "$CONNECTOR_TAX_PROJECT" != / ] || CONNECTOR_TAX_PROJECT=$PWD
fi
[ -f "$CONNECTOR_TAX_PROJECT/launch/common.sh" ] ||
  fail "no launch/common.sh above this script or in $CONNECTOR_TAX_PROJECT. Set CONNECTOR_TAX_PROJECT to a clone of connector-tax."

EOF
  for word in "ENGINE_PYTHON $ENGINE_PYTHON" "MODEL $model" "HOST $HOST" "PORT $PORT"; do
    printf '%s=${%s:-%s}\n' "${word%% *}" "${word%% *}" "$(portable "${word#* }")"
  done
  [ -z "${ENGINE_CPUS:-}" ] || printf 'ENGINE_CPUS=${ENGINE_CPUS-%q}   # empty: any core\n' "$ENGINE_CPUS"
  printf 'command -v "$ENGINE_PYTHON" > /dev/null ||\n  fail "ENGINE_PYTHON: $ENGINE_PYTHON: no such program here. Set it to an interpreter that has %s."\n' "$needs"
  echo 'case "$MODEL" in'
  echo '  /*) [ -e "$MODEL" ] || fail "MODEL: $MODEL: no such folder here. Set it to the model that the run had, a folder or a hub id." ;;'
  echo 'esac'
  echo
  for name in PYTHONPATH $(shaping); do
    word=$(portable "${!name}")
    case "$name" in
      CUDA_DEVICE_ORDER|CUDA_VISIBLE_DEVICES|CUDA_HOME|HF_HOME|*_CACHE|*_CACHE_ROOT|*_LIBRARY_PATH)
        printf 'export %s=${%s-%s}\n' "$name" "$name" "$word" ;;
      *) printf 'export %s=%s\n' "$name" "$word" ;;
    esac
  done
  if [ -n "${AGENTIC_STEP_LOG_PATH:-}" ]; then
    cat <<'EOF'
# Step records, which a patched vLLM and the embedded engine write: by default in a new temporary folder.
export AGENTIC_STEP_LOG_PATH=${AGENTIC_STEP_LOG_PATH-$(mktemp -d -t connector-tax-steps.XXXXXX)/steps}
mkdir -p "$(dirname "$AGENTIC_STEP_LOG_PATH")"
echo "step records: $AGENTIC_STEP_LOG_PATH" >&2
EOF
  fi
  printf '\n# As it ran:'
  [ -z "${ENGINE_CPUS:-}" ] || printf ' taskset --cpu-list %q' "$ENGINE_CPUS"
  for word in "${command[@]}"; do printf ' %s' "$(portable "$word")"; done
  printf '\nexec '
  [ -z "${ENGINE_CPUS:-}" ] || printf '${ENGINE_CPUS:+taskset --cpu-list "$ENGINE_CPUS"} '
  printf '"$ENGINE_PYTHON"'
  for word in "${command[@]:1}"; do
    case "$before $word" in
      "--model $MODEL"|"serve $MODEL") printf ' "$MODEL"' ;;
      "--host $HOST") printf ' "$HOST"' ;;
      "--port $PORT") printf ' "$PORT"' ;;
      *) printf ' %s' "$(portable "$word")" ;;
    esac
    before=$word
  done
  echo
}
