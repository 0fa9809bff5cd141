# Sourced by common.sh: prints the engine's command, with what shapes it, as a script that runs in any clone.
# Reads `root` (this project's folder), `command` (without taskset), `container` (its first words, if any) and common.sh's variables. RECORD_PYTHON, any Python from 3.11
# on, says what of it is secret (connector_tax/run/engine/launch_words.py); RECORD_NEEDED are the variables that the config sets, RECORD_REFERRING what in it refers to secrets,
# RECORD_STORES is the folder in which each launch with a store has one of its own, if this one has; RECORD_FOLDER the one that a container writes into.
shopt -s extglob

# One word for bash. This project's folder, the store and the home folder become variables; a word in $'...' stays as it is,
# since nothing is expanded in there.
portable() {
  local word project home stores
  printf -v word %q "$1"
  printf -v project %q "$root/"
  printf -v home %q "${HOME:-}/"
  printf -v stores %q "${RECORD_STORES:-}"
  if [ "${word:0:2}" != "\$'" ]; then
    word=${word//"$project"/'"$CONNECTOR_TAX_PROJECT"/'}
    [ -z "${RECORD_STORES:-}" ] || word=${word//"$stores"\/+([0-9])/'"$CONNECTOR_TAX_STORE"'}
    [ "${HOME:-/}" = / ] || word=${word//"$home"/'"$HOME"/'}
  fi
  printf %s "$word"
}

# One word, already for bash, of those that start a container: what is this launch's own becomes a variable as well.
of_this_launch() {
  local word=$1 own
  case "$MODEL" in
    /*)
      own=$(portable "$MODEL")
      word=${word//"=$own\\,"/'="$MODEL"\,'}
      word=${word/%"=$own"/'="$MODEL"'} ;;
  esac
  own=$(portable "$RECORD_FOLDER")
  word=${word//"=$own\\,"/'="$CONNECTOR_TAX_FOLDER"\,'}
  word=${word/%"=$own"/'="$CONNECTOR_TAX_FOLDER"'}
  printf %s "${word//"${CONNECTOR_TAX_RUN:-none}"/'by-hand-"$$"'}"
}

# How a program came to its end, by the exit code $1 that bash gives it.
ended() {
  if [ "$1" -gt 128 ]; then echo "was killed by SIG$(kill -l "$(($1 - 128))")"; else echo "failed with exit code $1"; fi
}

# Sorts out what is secret: fills `plain`, `needed`, `held` and `given` with names of variables, `was` with what is left of values,
# `as` with values in which another variable stands, and `shown` and `said` with the words of `command`: as they are run, and as they are read.
sort_out() {
  local told=() field i=0 n k name code=0
  plain=() needed=() held=() given=() shown=() said=()
  mapfile -d '' -t told < <(printf '%s\0' "${command[@]}" |
    RECORD_PYTHONPATH=$PYTHONPATH PYTHONPATH=$root/src "${RECORD_PYTHON:-python3}" -m connector_tax.run.engine.launch_words)
  wait "$!" || code=$?
  if [ "$code" -ne 0 ] || [ "${#told[@]}" -eq 0 ] || [ "${told[-1]}" != end ]; then
    echo "error: launch.sh is not written: ${RECORD_PYTHON:-python3} -m connector_tax.run.engine.launch_words, which tells secrets from the rest, $(ended "$code")" >&2
    exit 2
  fi
  while [ "${told[i]}" != end ]; do
    field=${told[i]}
    i=$((i + 1))
    case "$field" in
      plain\ *) plain+=("${field#plain }") ;;
      needed\ *) needed+=("${field#needed }") ;;
      held\ *) held+=("${field#held }") ;;
      given\ *) given+=("${field#given }") ;;
      was\ *) printf -v "was_${told[i - 2]#* }" %q "${field#was }" ;;
      as\ *)
        name=${field#as }
        n=$((i + ${name#* }))
        name=as_${name% *}
        printf -v "$name" %s ''
        for ((k = 0; i < n; k++, i++)); do
          if [ $((k % 2)) -eq 1 ]; then
            printf -v "$name" '%s"${%s}"' "${!name}" "${told[i]}"
          elif [ -n "${told[i]}" ]; then
            printf -v "$name" '%s%s' "${!name}" "$(portable "${told[i]}")"
          fi
        done ;;
      word\ *)
        n=$((i + ${field#word }))
        shown+=('') said+=('')
        for ((k = 0; i < n; k++, i++)); do
          if [ $((k % 2)) -eq 1 ]; then
            shown[-1]+='"${'${told[i]}'}"'
            said[-1]+='<redacted>'
          elif [ -n "${told[i]}" ] || [ "$field" = 'word 1' ]; then
            shown[-1]+=$(portable "${told[i]}")
            said[-1]+=$(portable "${told[i]}")
          fi
        done ;;
    esac
  done
}

# Whether $1 is among the others.
among() {
  local name=$1
  shift
  case " $* " in *" $name "*) return 0 ;; esac
  return 1
}

# A variable that whoever runs the script has to set, and what is left of its value without the secret.
asked_for() {
  local was=was_$1
  [ -z "${!was:-}" ] || printf '# %s was %s\n' "$1" "${!was}"
  printf ': "${%s:?launch.sh: the run had a secret here, which is not kept: set %s}"\n' "$1" "$1"
}

launch_sh() {
  local name word i before='' first=${#container[@]} model=$MODEL plain needed held given shown said needs='vLLM; env.txt beside this script names its version'
  case "$model" in ./*|../*) model=$PWD/${model#./} ;; esac
  sort_out
  case "$ENGINE_MODULE" in connector_tax.*) needs='the packages of requirements.lock (make env)' ;; esac
  cat <<'EOF'
#!/usr/bin/env bash
# The engine of this run. Run it by hand to get the same server, also from a copy in another clone:
#
#   ENGINE_PYTHON=/path/to/python MODEL=/path/to/model PORT=8000 bash launch.sh
#
# NAME=${NAME:-...} belongs to a machine: a value in the environment goes before the one that the run had.
# Everything else is as it was. Secrets are not in here: a variable that held one has to be set.
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
    if among "${word%% *}" "${needed[@]}"; then
      asked_for "${word%% *}"
    else
      printf '%s=${%s:-%s}\n' "${word%% *}" "${word%% *}" "$(portable "${word#* }")"
    fi
  done
  [ -z "${ENGINE_CPUS:-}" ] || printf 'ENGINE_CPUS=${ENGINE_CPUS-%q}   # empty: any core\n' "$ENGINE_CPUS"
  if [ "$first" -gt 0 ]; then
    printf 'command -v %q > /dev/null || fail "no %q here, the container runtime that the run had."\n' "${container[0]}" "${container[0]}"
  else
    printf 'command -v "$ENGINE_PYTHON" > /dev/null ||\n  fail "ENGINE_PYTHON: $ENGINE_PYTHON: no such program here. Set it to an interpreter that has %s."\n' "$needs"
  fi
  echo 'case "$MODEL" in'
  echo '  /*) [ -e "$MODEL" ] || fail "MODEL: $MODEL: no such folder here. Set it to the model that the run had, a folder or a hub id." ;;'
  echo 'esac'
  echo
  for name in "${needed[@]}" "${given[@]}"; do
    among "$name" MODEL ENGINE_PYTHON || asked_for "$name"
  done
  for name in "${needed[@]}"; do
    among "$name" MODEL ENGINE_PYTHON || printf 'export %s\n' "$name"
  done
  for name in "${held[@]}"; do
    among "$name" "${given[@]}" ||
      printf '# %s was set as well, to a secret that is not kept. Set it if the engine asks for it.\n' "$name"
  done
  if [ -n "${RECORD_STORES:-}" ]; then
    cat <<'EOF'
# The connector's store, which was empty when the run began: by default a new temporary folder.
CONNECTOR_TAX_STORE=${CONNECTOR_TAX_STORE-$(mktemp -d -t connector-tax-store.XXXXXX)}
echo "store: $CONNECTOR_TAX_STORE" >&2
EOF
  fi
  if [ "$first" -gt 0 ]; then
    cat <<'EOF'
# What the container writes: step records, by default in a new temporary folder, and what the engine caches, in a home folder of its own.
CONNECTOR_TAX_FOLDER=${CONNECTOR_TAX_FOLDER-$(mktemp -d -t connector-tax-container.XXXXXX)}
CONNECTOR_TAX_GPU_FOLDER=$CONNECTOR_TAX_FOLDER
AGENTIC_STEP_LOG_PATH=$CONNECTOR_TAX_FOLDER/steps
EOF
    for ((i = 0; i < first; i++)); do
      case "${container[i]}" in --env=HOME=*) printf 'mkdir -p %s\n' "${shown[i]#--env=HOME=}" ;; esac
    done
  fi
  for name in PYTHONPATH "${plain[@]}"; do
    before=as_$name
    word=${!before:-$(portable "${!name}")}
    case "$name" in
      CUDA_DEVICE_ORDER|CUDA_VISIBLE_DEVICES|CUDA_HOME|HF_HOME|*_CACHE|*_CACHE_ROOT|*_LIBRARY_PATH)
        printf 'export %s=${%s-%s}\n' "$name" "$name" "$word" ;;
      *) printf 'export %s=%s\n' "$name" "$word" ;;
    esac
  done
  if [ -n "${CONNECTOR_TAX_VIRTUAL_GPU:-}" ]; then
    cat <<'EOF'
# The virtual GPU, and the folder of its clock's log: by default a new temporary one. Cards of this machine are not used.
export CUDA_VISIBLE_DEVICES=
CONNECTOR_TAX_GPU_FOLDER=${CONNECTOR_TAX_GPU_FOLDER-$(mktemp -d -t connector-tax-gpu.XXXXXX)}
export CONNECTOR_TAX_VIRTUAL_GPU=$CONNECTOR_TAX_GPU_FOLDER/virtual_gpu.json
sed "s|@FOLDER@|$CONNECTOR_TAX_GPU_FOLDER|" > "$CONNECTOR_TAX_VIRTUAL_GPU" <<'VIRTUAL_GPU'
EOF
    printf '%s\n' "$(sed -E 's|("clock_log": *)"[^"]*"|\1"@FOLDER@/device_clock.jsonl"|' "$CONNECTOR_TAX_VIRTUAL_GPU")"
    cat <<'EOF'
VIRTUAL_GPU
echo "virtual GPU: $CONNECTOR_TAX_GPU_FOLDER" >&2
EOF
  fi
  if [ -n "${AGENTIC_STEP_LOG_PATH:-}" ]; then
    cat <<'EOF'
# Step records, which vLLM and the embedded engine write: by default in a new temporary folder.
export AGENTIC_STEP_LOG_PATH=${AGENTIC_STEP_LOG_PATH-$(mktemp -d -t connector-tax-steps.XXXXXX)/steps}
mkdir -p "$(dirname "$AGENTIC_STEP_LOG_PATH")"
echo "step records: $AGENTIC_STEP_LOG_PATH" >&2
EOF
  fi
  before=
  printf '\n# As it ran:'
  [ -z "${ENGINE_CPUS:-}" ] || printf ' taskset --cpu-list %q' "$ENGINE_CPUS"
  printf ' %s' "${said[@]}"
  printf '\nexec '
  [ -z "${ENGINE_CPUS:-}" ] || printf '${ENGINE_CPUS:+taskset --cpu-list "$ENGINE_CPUS"} '
  for ((i = 0; i < first; i++)); do
    case "${container[0]} ${container[i]}" in
      *' --interactive') ;;   # without a pipe for its standard input the container does not end with one
      "docker --user=$(id -u):$(id -g)") printf '%s ' '--user="$(id -u):$(id -g)" $(printf " --group-add=%s" $(id -G))' ;;
      'docker --group-add='*) ;;
      *) printf '%s ' "$(of_this_launch "${shown[i]}")" ;;
    esac
  done
  printf '"$ENGINE_PYTHON"'
  for ((i = first + 1; i < ${#command[@]}; i++)); do
    word=${command[i]}
    case "$before $word" in
      "--model $MODEL"|"serve $MODEL") printf ' "$MODEL"' ;;
      "--host $HOST") printf ' "$HOST"' ;;
      "--port $PORT") printf ' "$PORT"' ;;
      *) printf ' %s' "${shown[i]}" ;;
    esac
    before=$word
  done
  echo
}
