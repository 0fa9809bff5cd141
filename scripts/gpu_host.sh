#!/usr/bin/env bash
# gpu_host.sh: measure on a GPU host that can fetch nothing and whose commands are cut after some minutes.
#
#   there  OUT=FOLDER scripts/gpu_host.sh measure PARTS SECONDS CONFIG[:SECONDS] ...
#          unpacks the engine from PARTS (part-00 ...), makes the model folders, and measures the campaigns in the given order until
#          SECONDS are over; one with :SECONDS of its own takes no more than these. Everything that has to come home lies in OUT.
#          Exit code: 0 when all are measured, 75 when there is more to do (run it again), else that of one that failed.
#   here   scripts/gpu_host.sh home FOLDER ...
#          takes what came back in these folders, and makes analysis, figures, report, tables and the fitted clock of each campaign.
#
# Environment: GPU_HOST_WORK (default /tmp/gpu-host), the same there and here, since the engine's path is part of a campaign;
# GPU_HOST_LAUNCH_S, what a launch takes there (40); CARD, whose profile is fitted at home (h100).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work=${GPU_HOST_WORK:-/tmp/gpu-host}
export MODELS=$work/models ENGINE_PYTHON=$work/engine/env/bin/python

say() { printf '[%4ds] %s\n' "$SECONDS" "$*"; }
name_of() { sed -n 's/^campaign: *\([^ ]*\).*/\1/p' "$1"; }
advance() { PYTHONPATH=src "$ENGINE_PYTHON" -m connector_tax advance "$@"; }

measure() {
  local parts=$1 until=$2 config limit rc worst=0; shift 2
  mkdir -p "${OUT:?the folder for what has to come home}" "$work"
  exec > >(tee -a "$OUT/log-$(date -u +%H%M%S).txt") 2>&1
  { date -u; nproc; free -g; nvidia-smi || true; } >"$OUT/host.txt" 2>&1
  scripts/unpack_engine.sh "$parts" "$work/engine"
  # Each launch imports two thousand modules, twice, and the archive holds no bytecode.
  env -u PYTHONDONTWRITEBYTECODE "$ENGINE_PYTHON" -m compileall -q -j 0 "$work/engine/packages" >"$work/compileall.txt" 2>&1 || say "some files do not compile: $work/compileall.txt"
  say "unpacked"
  for config in "$@"; do models "${config%%:*}"; done
  tiles
  say "model folders made"
  for config in "$@"; do
    limit=$((until - SECONDS))
    [[ $config != *:* || ${config#*:} -ge $limit ]] || limit=${config#*:}
    sit "${config%%:*}" "$limit" && rc=0 || rc=$?
    say "${config%%:*}: exit code $rc"
    [ "$rc" = 0 ] || [ "$worst" = 0 ] || [ "$worst" = 75 ] || rc=$worst
    [ "$rc" = 0 ] || worst=$rc
  done
  say "to bring home:"
  ls -l "$OUT"
  return "$worst"
}

models() {   # the folder of a config's model, where config/models/ has its shape
  local name shape
  name=$(sed -n 's|^  model: ${MODELS}/\([^ ]*\).*|\1|p' "$1")
  shape=config/models/$name.json
  [ ! -f "$shape" ] || "$ENGINE_PYTHON" scripts/make_model_folder.py "$shape" "$MODELS/$name"
}

tiles() {   # some releases have tuned tiles of the 30B shape for the H200 and none for the H100, which has the same processor
  local known="$work/engine/packages/vllm/model_executor/layers/fused_moe/configs/E=128,N=768,device_name=NVIDIA_H200.json"
  mkdir -p "$MODELS/moe"
  [ ! -f "$known" ] || cp -n "$known" "$MODELS/moe/E=128,N=768,device_name=NVIDIA_H100_80GB_HBM3.json"
}

# sit CONFIG SECONDS: one sitting of it. Where plain does not start, other settings are tried, each as a campaign of its own; those that
# start are kept for every later campaign.
sit() {
  local config=$1 end=$((SECONDS + $2)) variants=(as_is triton eager) variant own rc=1
  [ ! -f "$work/variant" ] || variants=("$(cat "$work/variant")")
  grep -q attention_backend "$config" || variants=(as_is)
  for variant in "${variants[@]}"; do
    own=$OUT/$(basename "$config" .yaml)-$variant.yaml
    as_"$variant" <"$config" >"$own"
    say "$(name_of "$own"): $((end - SECONDS)) s"
    rc=0
    advance --configfile "$own" --minutes "$(awk "BEGIN {print ($end - $SECONDS) / 60}")" --preflight plain \
      --launch-s "${GPU_HOST_LAUNCH_S:-40}" --save "$OUT" || rc=$?
    # Preflight ends with this file if plain runs.
    [ ! -f "results/$(name_of "$own")/preflight/preflight_status.json" ] || { echo "$variant" >"$work/variant"; break; }
    say "plain does not run $variant"
  done
  return "$rc"
}
as_as_is() { cat; }
as_triton() { sed -E 's/^(campaign: .*)/\1-triton/; s/^( *attention_backend:).*/\1 TRITON_ATTN/'; }
as_eager() { sed -E 's/^(campaign: [^ ]*)/\1-eager/; s/^( *)attention_backend:.*/\1attention_backend: TRITON_ATTN\n\1enforce_eager: true/'; }

home() {
  local ct=.venv/bin/connector-tax config name archives
  for config in $(for folder in "$@"; do ls "$folder"/*-{as_is,triton,eager}.yaml; done 2>/dev/null | awk -F/ '!seen[$NF]++'); do
    name=$(name_of "$config")
    mapfile -t archives < <(find "$@" -maxdepth 1 -name "$name-2*.tar.gz")
    [ ${#archives[@]} -gt 0 ] || continue
    say "$name"
    $ct advance --configfile "$config" --take "${archives[@]}"
    $ct analyze --root "results/$name"
    $ct figures --root "results/$name"
    $ct report --root "results/$name"
    $ct report --root "results/$name" --markdown
    ! grep -q 'kind: vllm' "$config" || $ct fit-gpu --root "results/$name" --gpu "${CARD:-h100}" || say "no clock was fitted to $name"
  done
}

case ${1:-} in
  measure | home) "$@" ;;
  *) sed -n '2,13p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
