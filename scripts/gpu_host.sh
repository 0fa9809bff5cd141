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
# GPU_HOST_LAUNCH_S, what a launch takes there (40).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work=${GPU_HOST_WORK:-/tmp/gpu-host}
export MODELS=$work/models ENGINE_PYTHON=$work/engine/env/bin/python

say() { printf '[%4ds] %s\n' "$SECONDS" "$*"; }
name_of() { sed -n 's/^campaign: *\([^ ]*\).*/\1/p' "$1"; }
# In the background, so that a signal is passed on: the sitting then ends its engine and packs its results,
# and this script waits for that.
measured() { PYTHONPATH=src "$ENGINE_PYTHON" -m connector_tax run --end-with-parent $$ "$@" & sitting=$!; wait "$sitting"; }

measure() {
  local parts=$1 until=$2 config limit rc worst=0; shift 2
  mkdir -p "${OUT:?the folder for what has to come home}" "$work"
  sitting=
  trap '[ -z "$sitting" ] || { kill "$sitting"; wait "$sitting"; }; exit 143' INT TERM HUP
  exec > >(trap '' INT TERM HUP; exec tee -a "$OUT/log-$(date -u +%H%M%S).txt") 2>&1
  { date -u; nproc; free -g; nvidia-smi; } >"$OUT/host.txt" 2>&1 || true   # a small host lacks some of them
  scripts/unpack_engine.sh "$parts" "$work/engine"
  # Each launch imports two thousand modules twice, and the archive holds no bytecode.
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

models() {   # make the folder of a config's model if config/models/ has its shape
  local name shape
  name=$(sed -n 's|^  model: ${MODELS}/\([^ ]*\).*|\1|p' "$1")
  shape=config/models/$name.json
  [ ! -f "$shape" ] || "$ENGINE_PYTHON" scripts/make_model_folder.py "$shape" "$MODELS/$name"
}

tiles() {   # some releases have tuned tiles of the 30B shape for the H200, not for the same-processor H100
  local known="$work/engine/packages/vllm/model_executor/layers/fused_moe/configs/E=128,N=768,device_name=NVIDIA_H200.json"
  mkdir -p "$MODELS/tiles-of-H200"
  [ ! -f "$known" ] || cp -n "$known" "$MODELS/tiles-of-H200/E=128,N=768,device_name=NVIDIA_H100_80GB_HBM3.json"
}

# sit CONFIG SECONDS: one sitting. If preflight decides against plain, other settings are tried, each as its
# own campaign; those that start are kept for every later campaign. If time ran out or the host is to blame,
# nothing is decided.
sit() {
  local config=$1 end=$((SECONDS + $2)) variants=(as_is triton eager) preflight=plain variant own folder rc=1
  # If plain is known to start, its trial launch would waste time.
  [ ! -f "$work/variant" ] || { variants=("$(cat "$work/variant")"); preflight=none; }
  grep -q attention_backend "$config" || variants=(as_is)
  for variant in "${variants[@]}"; do
    own=$OUT/$(basename "$config" .yaml)-$variant.yaml
    as_"$variant" <"$config" >"$own"
    folder=results/$(name_of "$own")
    say "$folder: $((end - SECONDS)) s"
    rc=0
    measured "$own" --minutes "$(awk "BEGIN {print ($end - $SECONDS) / 60}")" --preflight "$preflight" \
      --launch-s "${GPU_HOST_LAUNCH_S:-40}" --save "$OUT" || rc=$?
    # Preflight writes this file last, if plain runs.
    [ ! -f "$folder/preflight/preflight_status.json" ] || { echo "$variant" >"$work/variant"; break; }
    [ -f "$folder/preflight/plain/decision.json" ] || break
    say "plain does not run $variant"
  done
  return "$rc"
}
as_as_is() { cat; }
as_triton() { sed -E 's/^(campaign: [^ ]*)/\1-triton/; s/^( *attention_backend:).*/\1 TRITON_ATTN/'; }
as_eager() { sed -E 's/^(campaign: [^ ]*)/\1-eager/; s/^( *)attention_backend:.*/\1attention_backend: TRITON_ATTN\n\1enforce_eager: true/'; }

home() {   # an unreadable campaign does not stop the others
  local configs config rc=0
  mapfile -t configs < <(find "$@" -maxdepth 1 -name '*.yaml' | sort | awk -F/ '!seen[$NF]++')
  for config in "${configs[@]}"; do
    bring_home "$config" "$@" || { say "$config: not read, for the reason above"; rc=2; }
  done
  return "$rc"
}

bring_home() {   # CONFIG FOLDER ...
  local ct=.venv/bin/connector-tax config=$1 name archives; shift
  name=$(name_of "$config")
  mapfile -t archives < <(find "$@" -maxdepth 1 -name "$name-2*.tar.gz")
  [ ${#archives[@]} -gt 0 ] || return 0
  say "$name"
  $ct run "$config" --take "${archives[@]}" || return
  [ -n "$(find "results/$name" -path '*/cells/*/cell.json' -print -quit)" ] || { say "nothing was measured; the engine's logs lie in results/$name/preflight"; return 0; }
  $ct report "results/$name" && $ct report "results/$name" --markdown || return
  ! grep -q 'kind: vllm' "$config" || $ct fit-gpu "results/$name" || say "no clock was fitted to $name"
}

case ${1:-} in
  measure | home) "$@" ;;
  *) sed -n '2,13p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
